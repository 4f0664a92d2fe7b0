#include "model/model.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "model/llama.h"
#include "model/opt.h"

namespace temper {
namespace {

// The class name in "architectures", else derived from "model_type".
std::string ArchitectureOf(const Json& config) {
  const auto list = config.find("architectures");
  if (list != config.end() && list->is_array() && !list->empty() && list->front().is_string()) {
    return list->front().get<std::string>();
  }
  const auto type = config.find("model_type");
  if (type == config.end() || !type->is_string()) return "";
  if (*type == "llama") return "LlamaForCausalLM";
  if (*type == "opt") return "OPTForCausalLM";
  return type->get<std::string>();
}

}  // namespace

Result<std::unique_ptr<Model>> Model::FromConfig(const Json& config, const std::string& where) {
  if (!config.is_object()) return Corrupt(where + ": should be a JSON object");
  if (config.contains("quantization_config") && !config["quantization_config"].is_null()) {
    return Unsupported(where + ": quantised models cannot be trained; use the original weights");
  }
  const std::string architecture = ArchitectureOf(config);
  if (architecture == "LlamaForCausalLM") {
    TEMPER_ASSIGN_OR_RETURN(LlamaConfig c, ReadLlamaConfig(config, where));
    return MakeLlama(std::move(c));
  }
  if (architecture == "OPTForCausalLM") {
    TEMPER_ASSIGN_OR_RETURN(OptConfig c, ReadOptConfig(config, where));
    return MakeOpt(std::move(c));
  }
  return Unsupported(
      fmt::format("{}: architecture '{}' is not supported; supported are LlamaForCausalLM and "
                  "OPTForCausalLM",
                  where, architecture));
}

Graph Model::Forward(const ForwardSpec& spec) const {
  Graph graph;
  ForwardBuilder builder(&graph, spec);
  BuildForward(builder);
  return graph;
}

Status ReadUnusedDropout(const Json& config, const std::vector<const char*>& keys, const std::string& where,
                         ModelFacts* facts) {
  for (const char* key : keys) {
    TEMPER_ASSIGN_OR_RETURN(const double p, NumberOr(config, key, 0, where));
    if (p != 0) facts->training_notes.push_back(fmt::format("{} {} of {} is not applied in training", key, p, where));
  }
  return OkStatus();
}

int64_t NumParameters(const Model& model) {
  int64_t n = 0;
  for (const WeightSpec& w : model.Weights()) n += w.shape.elements();
  return n;
}

void TrainAllWeights(Graph* graph) {
  for (ValueId id = 0; id < graph->num_values(); ++id) {
    if (graph->value(id).role == Role::kWeight) graph->value(id).trainable = true;
  }
}

}  // namespace temper
