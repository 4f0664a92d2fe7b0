#include "model/model.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "graph/named_ops.h"

namespace temper {
ForwardBuilder Model::BuilderOf(Graph* graph, const ForwardSpec& spec) const {
  return {graph,
          spec,
          {.in_graph = [this](const std::string& name) { return NameInGraph(name); },
           .in_files = [this](const std::string& name) { return NamesInFiles(name); }}};
}

void Model::Declare() {
  Graph graph;
  ForwardBuilder builder = BuilderOf(&graph, {.tokens = 1});
  BuildForward(builder);
  weights_ = builder.weights();
  modules_ = builder.modules();
  for (LinearModule& module : modules_) module.older_paths = OlderPaths(module.path);
}

std::vector<StoredWeight> Model::StoredWeights() const {
  std::vector<StoredWeight> stored;
  for (const WeightDeclaration& w : weights_) stored.push_back({w.name, w.shape, w.source});
  return stored;
}

Result<GgufModel> Model::Gguf() const {
  TEMPER_ASSIGN_OR_RETURN(GgufModel described, Describe());
  const auto find_all = [&](std::vector<StoredWeight>& parts) {
    for (StoredWeight& part : parts) {
      const std::string name = NameInGraph(part.name);
      const auto found =
          std::find_if(weights_.begin(), weights_.end(), [&](const WeightDeclaration& w) { return w.name == name; });
      TEMPER_CHECK(found != weights_.end()) << facts().architecture << " has no weight " << name;
      part = {found->name, found->shape, found->source};
    }
  };
  for (GgufTensor& tensor : described.tensors) find_all(tensor.parts);
  for (GgufNumbers& numbers : described.numbers) find_all(numbers.parts);
  return described;
}

Graph Model::Forward(const ForwardSpec& spec) const {
  Graph graph;
  ForwardBuilder builder = BuilderOf(&graph, spec);
  BuildForward(builder);
  return graph;
}

Status ReadUnusedDropout(const Json& config, const char* key, double fallback, const std::string& where,
                         ModelFacts* facts) {
  TEMPER_ASSIGN_OR_RETURN(const double p, NumberOr(config, key, fallback, where));
  if (p != 0) facts->training_notes.push_back(fmt::format("{} {} of {} is not applied in training", key, p, where));
  return OkStatus();
}

Result<double> ReadDropout(const Json& config, const char* key, double fallback, const std::string& where,
                           ModelFacts* facts) {
  TEMPER_ASSIGN_OR_RETURN(const double p, NumberOr(config, key, fallback, where));
  if (!(p >= 0 && p < 1)) {
    return Corrupt(fmt::format("{}: {} is {}, should be at least 0 and below 1", where, key, p));
  }
  if (p > 0) {
    facts->training_notes.push_back(fmt::format(
        "{} {} of {} is applied in training, as transformers does; 0 there switches it off", key, p, where));
  }
  return p;
}

int64_t NumParameters(const Model& model) {
  int64_t n = 0;
  for (const WeightDeclaration& w : model.weights()) n += w.fixed ? 0 : w.shape.elements();
  return n;
}

int64_t NumActiveParameters(const Model& model) {
  int64_t n = NumParameters(model);
  for (const LinearModule& m : model.modules()) {
    n -= (m.matrices - m.active) * m.out() * m.in;
    if (m.matrices == 0) continue;
    for (const WeightDeclaration& w : model.weights()) {
      if (w.name == m.path + "_bias") n -= (m.matrices - m.active) * w.shape[1];
    }
  }
  return n;
}

std::string ParametersText(int64_t parameters, int64_t active) {
  const auto millions = [](int64_t n) { return fmt::format("{:.2f} M", static_cast<double>(n) * 1e-6); };
  return millions(parameters) + " parameters" + (active == parameters ? "" : ", " + millions(active) + " active");
}

void TrainAllWeights(Graph* graph) {
  for (ValueId id = 0; id < graph->num_values(); ++id) {
    if (graph->value(id).role == Role::kWeight) graph->value(id).trainable = true;
  }
  for (const Node& node : graph->nodes()) {
    const bool fixed = node.op == Op::kScaleBy || (node.op == Op::kRoute && node.attributes.Flag("bias"));
    if (fixed) graph->value(node.inputs[1]).trainable = false;
    for (const size_t constant : {3, 4}) {
      if (node.op == Op::kXielu) graph->value(node.inputs[constant]).trainable = false;
    }
  }
}

}  // namespace temper
