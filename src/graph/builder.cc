#include "graph/builder.h"

#include "graph/named_ops.h"
#include "graph/rule.h"

namespace temper {

void GraphBuilder::EnterBlock(int block, std::string prefix, Phase phase) {
  block_ = block;
  prefix_ = std::move(prefix);
  phase_ = phase;
}

ValueId GraphBuilder::Source(std::string name, TensorType type, Role role) {
  return graph_->AddValue(
      {.name = std::move(name), .type = type, .role = role, .decays = DecaysByDefault(role, type.shape)});
}

ValueId GraphBuilder::TokenInput(std::string name, DType dtype, int64_t tokens) {
  return graph_->AddValue(
      {.name = std::move(name), .type = {dtype, {tokens}}, .role = Role::kInput, .per_token = true});
}

ValueId GraphBuilder::FindInput(std::string_view name) const {
  for (ValueId id = 0; id < graph_->num_values(); ++id) {
    const Value& value = graph_->value(id);
    if (value.role == Role::kInput && value.name == name) return id;
  }
  return kNoValue;
}

std::vector<ValueId> GraphBuilder::Add(Op op, std::vector<ValueId> inputs, Attributes attributes,
                                       const std::string& name, Role role) {
  const Result<Types> types = InferTypes(op, TypesOf(*graph_, inputs), attributes);
  TEMPER_CHECK(types.ok()) << prefix_ << name << ": " << types.status().message();
  Node node{
      .op = op, .inputs = std::move(inputs), .attributes = std::move(attributes), .block = block_, .phase = phase_};
  for (size_t i = 0; i < types->size(); ++i) {
    node.outputs.push_back(graph_->AddValue(
        {.name = prefix_ + name + (i ? "." + std::to_string(i) : ""), .type = (*types)[i], .role = role}));
  }
  if (RuleOf(op).random) node.rng_name = prefix_ + name;
  if (RuleOf(op).only_root) graph_->roots().push_back({node.outputs[0]});
  const std::vector<ValueId> outputs = node.outputs;
  graph_->AddNode(std::move(node));
  return outputs;
}

ValueId GraphBuilder::Embedding(ValueId table_VD, ValueId index_T, int64_t offset, const std::string& name) {
  return Add(Op::kEmbedding, {table_VD, index_T}, {{"offset", offset}}, name)[0];
}

ValueId GraphBuilder::Linear(ValueId x_TI, ValueId w_OI, ValueId bias_O, const std::string& name) {
  std::vector<ValueId> inputs = {x_TI, w_OI};
  if (bias_O != kNoValue) inputs.push_back(bias_O);
  return Add(Op::kLinear, std::move(inputs), {{"acc", int64_t{0}}, {"bias", int64_t{bias_O != kNoValue}}}, name)[0];
}

ValueId GraphBuilder::Sum(ValueId a, ValueId b, const std::string& name) {
  return Add(Op::kAdd, {a, b}, {}, name)[0];
}

ValueId GraphBuilder::Scale(ValueId x, double factor, const std::string& name) {
  return factor == 1 ? x : Add(Op::kScale, {x}, {{"factor", factor}}, name)[0];
}

ValueId GraphBuilder::RmsNorm(ValueId x_TD, ValueId w_D, double eps, const std::string& name, RmsNormForm form) {
  Attributes attributes = {{"eps", eps}};
  if (form.grouped) attributes.Set("grouped", int64_t{1});
  if (form.plus_one) attributes.Set("plus_one", int64_t{1});
  return Add(Op::kRmsNorm, {x_TD, w_D}, std::move(attributes), name)[0];
}

ValueId GraphBuilder::LayerNorm(ValueId x_TD, ValueId w_D, ValueId b_D, double eps, const std::string& name) {
  return Add(Op::kLayerNorm, {x_TD, w_D, b_D}, {{"eps", eps}}, name)[0];
}

ValueId GraphBuilder::Rope(ValueId x, ValueId table_TR, int64_t head_dim, bool interleaved, const std::string& name,
                           int64_t first) {
  Attributes attributes = {{"head_dim", head_dim}, {"inverse", int64_t{0}}};
  if (interleaved) attributes.Set("interleaved", int64_t{1});
  if (first > 0) attributes.Set("first", first);
  return Add(Op::kRope, {x, table_TR}, std::move(attributes), name)[0];
}

ValueId GraphBuilder::Glu(ValueId gate_TF, ValueId up_TF, const std::string& name, Gate gate) {
  Attributes attributes;
  if (gate == Gate::kSigmoid) attributes = {{"sigmoid", int64_t{1}}};
  if (gate == Gate::kIdentity) attributes = {{"identity", int64_t{1}}};
  if (gate == Gate::kGelu || gate == Gate::kGeluTanh) {
    attributes = {{"gelu", int64_t{1}}, {"tanh", int64_t{gate == Gate::kGeluTanh}}};
  }
  return Add(Op::kGlu, {gate_TF, up_TF}, std::move(attributes), name)[0];
}

ValueId GraphBuilder::SliceRows(ValueId x_TD, int64_t begin, int64_t count, const std::string& name) {
  return Add(Op::kSliceRows, {x_TD}, {{"begin", begin}, {"count", count}}, name)[0];
}

}  // namespace temper
