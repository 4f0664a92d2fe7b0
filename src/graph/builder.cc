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

}  // namespace temper
