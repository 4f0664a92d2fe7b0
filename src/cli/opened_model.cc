#include "cli/opened_model.h"

#include <fmt/format.h>

#include "base/log.h"
#include "format/model_weights.h"

namespace temper {
namespace {

constexpr char kConfigFile[] = "config.json";

std::vector<WeightNames> NamesOf(const Model& model) {
  std::vector<WeightNames> names;
  for (const WeightSpec& w : model.Weights()) names.push_back({w.name, w.aliases});
  return names;
}

// Folders that a relative base path in an adapter may be meant from: where the user stands, where the adapter lies.
std::string ResolveBase(Env& env, const std::string& base, const std::string& adapter_folder) {
  const std::string beside = JoinPath(adapter_folder, base);
  return !env.IsFolder(base) && env.IsFolder(beside) ? beside : base;
}

}  // namespace

LoraSpec LoraSpecOf(const AdapterConfig& c) {
  LoraSpec spec = {.r = c.r,
          .alpha = c.alpha,
          .dropout = c.dropout,
          .rslora = c.rslora,
          .target_regex = c.target_regex,
          .target_modules = c.target_modules,
          .exclude_modules = c.exclude_modules,
          .rank_pattern = c.rank_pattern,
          .alpha_pattern = c.alpha_pattern};
  if (spec.target_regex == "all-linear") spec.target_regex.clear();  // PEFT's word, in adapters written by hand
  return spec;
}

std::vector<WeightNames> AdapterWeightNames(const std::vector<LoraTarget>& targets) {
  std::vector<WeightNames> names;
  for (const LoraTarget& t : targets) {
    names.push_back({LoraAName(t.module), {}});
    names.push_back({LoraBName(t.module), {}});
  }
  return names;
}

Result<OpenedModel> OpenedModel::Open(Env& env, const ModelChoice& choice) {
  OpenedModel opened;
  opened.env_ = &env;
  opened.folder_ = choice.model;
  opened.adapter_folder_ = choice.adapter;
  if (!env.IsFolder(choice.model)) {
    return NotFound(fmt::format("there is no folder {}: --model takes a model folder, adapter folder, output folder or "
                                "checkpoint. A model of the Hugging Face hub has to be downloaded first",
                                choice.model));
  }
  if (env.IsFile(JoinPath(choice.model, kAdapterConfigFile))) opened.adapter_folder_ = choice.model;
  if (!opened.adapter_folder_.empty()) {
    TEMPER_ASSIGN_OR_RETURN(opened.adapter_, ReadAdapterConfig(env, JoinPath(opened.adapter_folder_, kAdapterConfigFile)));
    if (opened.adapter_folder_ == choice.model) {
      opened.folder_ = !choice.base.empty() ? choice.base : ResolveBase(env, opened.adapter_->base_model, choice.model);
      if (!env.IsFolder(opened.folder_)) {
        return NotFound(fmt::format("{}: the adapter's base model is '{}', which is no folder here; say where it is with "
                                    "--base FOLDER",
                                    JoinPath(opened.adapter_folder_, kAdapterConfigFile), opened.folder_));
      }
    }
  }
  const std::string config_path = JoinPath(opened.folder_, kConfigFile);
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(env, config_path));
  TEMPER_ASSIGN_OR_RETURN(opened.model_, Model::FromConfig(config, config_path));
  return opened;
}

Result<std::vector<LoraTarget>> OpenedModel::AdapterTargets() const {
  if (!adapter_) return std::vector<LoraTarget>();
  return ResolveLoraTargets(model_->Forward({.tokens = 1}), LoraSpecOf(*adapter_));
}

Result<std::unique_ptr<Tokenizer>> OpenedModel::LoadTokenizer() const { return Tokenizer::Load(*env_, folder_); }

Result<std::optional<ChatTemplate>> OpenedModel::LoadChatTemplate() const { return ChatTemplate::Load(*env_, folder_); }

Status OpenedModel::Load(const BufferLookup& buffer) const {
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights files, ModelWeights::Open(*env_, folder_));
  const std::vector<WeightNames> names = NamesOf(*model_);
  if (const auto unused = UnusedTensors(files, names); !unused.empty()) {
    LogWarning(fmt::format("{}: {} tensors are not part of {}, the first is {}", folder_, unused.size(),
                           model_->facts().architecture, unused.front()));
  }
  TEMPER_RETURN_IF_ERROR(LoadWeights(files, names, buffer));
  if (!adapter_) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LoraTarget> targets, AdapterTargets());
  TEMPER_ASSIGN_OR_RETURN(const ModelWeights adapter, ModelWeights::Open(*env_, adapter_folder_, WeightsKind::kAdapter));
  return LoadWeights(adapter, AdapterWeightNames(targets), buffer);
}

}  // namespace temper
