#include "graph/builder.h"

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
  if (op == Op::kDropout) node.rng_name = prefix_ + name;
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

ValueId GraphBuilder::RmsNorm(ValueId x_TD, ValueId w_D, double eps, const std::string& name) {
  return Add(Op::kRmsNorm, {x_TD, w_D}, {{"eps", eps}}, name)[0];
}

ValueId GraphBuilder::LayerNorm(ValueId x_TD, ValueId w_D, ValueId b_D, double eps, const std::string& name) {
  return Add(Op::kLayerNorm, {x_TD, w_D, b_D}, {{"eps", eps}}, name)[0];
}

ValueId GraphBuilder::RopeTable(ValueId position_T, const std::vector<double>& inv_freq, const std::string& name) {
  return Add(Op::kRopeTable, {position_T}, {{"inv_freq", inv_freq}}, name)[0];
}

ValueId GraphBuilder::Rope(ValueId x, ValueId table_TE, int64_t head_dim, const std::string& name) {
  return Add(Op::kRope, {x, table_TE}, {{"head_dim", head_dim}, {"inverse", int64_t{0}}}, name)[0];
}

ValueId GraphBuilder::Swiglu(ValueId gate_TF, ValueId up_TF, const std::string& name) {
  return Add(Op::kSwiglu, {gate_TF, up_TF}, {}, name)[0];
}

ValueId GraphBuilder::SliceRows(ValueId x_TD, int64_t begin, int64_t count, const std::string& name) {
  return Add(Op::kSliceRows, {x_TD}, {{"begin", begin}, {"count", count}}, name)[0];
}

}  // namespace temper
