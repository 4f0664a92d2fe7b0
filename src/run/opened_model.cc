#include "run/opened_model.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>

#include "base/log.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/sliced_weights.h"
#include "data/tokenizer/load_tokenizer.h"
#include "data/tokenizer/transformers_files.h"
#include "format/checksum.h"
#include "format/quoted.h"
#include "model/families.h"
#include "model/known_models.h"
#include "train/transfer_progress.h"

namespace temper {
namespace {

// Completes the error that `model` is not there, if known models have to do with it.
Status WithKnownModels(Status missing, const ModelChoice& choice) {
  if (missing.code() != StatusCode::kNotFound) return missing;
  if (FindKnownModel(choice.model)) {
    return NotFound(missing.message() + ". temper plan knows this name, but not the weights: give the model's folder");
  }
  if (!choice.by_name) return missing;
  const std::string nearest = NearestKnownModel(choice.model);
  if (!nearest.empty()) return NotFound(fmt::format("{}; did you mean '{}'?", missing.message(), nearest));
  if (choice.model.find('/') != std::string::npos) return missing;
  return NotFound(fmt::format("{}, and no model is known by this name. Known are {}", missing.message(),
                              fmt::join(KnownModelNames(), ", ")));
}

}  // namespace

Result<OpenedModel> OpenedModel::Open(Env& env, const ModelChoice& choice) {
  OpenedModel opened;
  opened.env_ = &env;
  const bool bare = choice.base.empty() && choice.adapter.empty();
  if (choice.by_name && bare && !env.IsFolder(choice.model)) {
    if (const auto config = FindKnownModel(choice.model)) {
      TEMPER_ASSIGN_OR_RETURN(opened.model_, ModelFromConfig(*config, choice.model));
      return opened;
    }
  }
  auto source =
      ResolveModelSource(env, {.model = choice.model, .base = choice.base, .needs_weights = choice.needs_weights});
  if (!source.ok()) return WithKnownModels(source.status(), choice);
  opened.source_ = *std::move(source);
  for (const std::string& notice : opened.source_.notices) LogInfo(notice);
  if (!choice.adapter.empty()) {
    if (!opened.source_.adapter_folder.empty()) {
      return InvalidArgument(fmt::format("--model {} is already an adapter: --adapter needs a model", choice.model));
    }
    // A checkpoint or output folder of a LoRA run is an adapter folder once resolved.
    TEMPER_ASSIGN_OR_RETURN(
        const ModelSource adapter,
        ResolveModelSource(env, {.model = choice.adapter, .option = "--adapter", .base = opened.folder()}));
    opened.source_.adapter_folder = adapter.adapter_folder;
  }
  if (!opened.source_.adapter_folder.empty()) {
    TEMPER_ASSIGN_OR_RETURN(opened.adapter_,
                            ReadLoraConfig(env, JoinPath(opened.source_.adapter_folder, kAdapterConfigFile)));
  }
  const std::string config_path = JoinPath(opened.folder(), kModelConfigFile);
  TEMPER_ASSIGN_OR_RETURN(const Json config, ReadJsonFile(env, config_path));
  TEMPER_ASSIGN_OR_RETURN(opened.model_, ModelFromConfig(config, config_path));
  return opened;
}

Result<std::vector<LoraModule>> OpenedModel::AdapterTargets() const {
  if (!adapter_) return std::vector<LoraModule>();
  return ResolveLora(model_->modules(), *adapter_);
}

Result<std::unique_ptr<Tokenizer>> OpenedModel::LoadTokenizer() const {
  return temper::LoadTokenizer(*env_, folder());
}

Result<std::optional<ChatTemplate>> OpenedModel::LoadChatTemplate() const {
  return ChatTemplate::Load(*env_, folder());
}

Status OpenedModel::OpenWeights() {
  TEMPER_ASSIGN_OR_RETURN(weights_, OpenModelWeights(*env_, folder()));
  const std::vector<FileTensor> tensors = FileTensorsOf(model_->StoredWeights());
  TEMPER_RETURN_IF_ERROR(CheckTensors(*weights_, tensors));
  if (const auto unused = UnusedTensors(*weights_, tensors); !unused.empty()) {
    LogWarning(fmt::format("{}: {} tensors are not part of {}, the first is {}", folder(), unused.size(),
                           model_->facts().architecture, Quoted(unused.front())));
  }
  if (!adapter_) return OkStatus();
  TEMPER_ASSIGN_OR_RETURN(const std::vector<LoraModule> targets, AdapterTargets());
  TEMPER_ASSIGN_OR_RETURN(adapter_weights_, AdapterReader::Open(*env_, source_.adapter_folder, targets));
  return OkStatus();
}

Result<std::string> OpenedModel::Digest() const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TEMPER_ASSIGN_OR_RETURN(const std::string config, ReadTextFile(*env_, JoinPath(folder(), kModelConfigFile)));
  TEMPER_ASSIGN_OR_RETURN(const std::string weights, weights_->Digest());
  return ChecksumHex(std::as_bytes(std::span(config))) + weights;
}

Result<StoredSlice> OpenedModel::FindStored(const std::string& weight, const PartView& part) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  for (const WeightDeclaration& w : model_->weights()) {
    if (w.name != weight) continue;
    const auto parts = w.source.FileParts(part);
    if (parts.size() == 1) return FindSlice(FindTensor(*weights_, *parts[0].tensor), parts[0].part);
    return Unsupported(fmt::format("{}: {} lies in {} places of the model's files", folder(), weight, parts.size()));
  }
  return NotFound(fmt::format("{}: the model has no weight {}", folder(), Quoted(weight)));
}

Status OpenedModel::Load(const BufferLookup& buffer) const {
  TEMPER_CHECK(weights_.has_value()) << "call OpenWeights first";
  TransferProgress progress("load");
  TEMPER_RETURN_IF_ERROR(LoadWeights(*weights_, model_->StoredWeights(), buffer, progress.Callback()));
  return adapter_weights_ ? adapter_weights_->Load(buffer) : OkStatus();
}

Result<ExportSpec> OpenedModel::ExportPlan() const {
  const LinearModule& head = model_->modules().back();
  std::string head_tensor;
  for (const StoredWeight& w : model_->StoredWeights()) {
    if (w.name == head.weights.front()) head_tensor = w.source.tensors().front().name;
  }
  ExportSpec spec{.source = source_,
                  .tensors = FileTensorsOf(model_->StoredWeights()),
                  .head = head.path,
                  .head_tensor = head_tensor,
                  .tied_key = model_->facts().tied_key};
  TEMPER_ASSIGN_OR_RETURN(spec.modules, AdapterTargets());
  spec.replaced = FilesForTransformers(*env_, folder()).replaced;
  return spec;
}

}  // namespace temper
