#include "run/model_options.h"

#include <fmt/core.h>

#include "base/log.h"
#include "base/team.h"
#include "checkpoint/training_state.h"
#include "config/run_options.h"
#include "program/program.h"

namespace temper {
namespace {

// Options of training that also apply to inference.
bool IsOfInference(const std::string& name) {
  return name == "memory.device" || name == "memory.host" || name == "memory.disk" || name == "memory.tiers" ||
         name == "memory.weights";
}

// Says where an adapter was trained on a base in another format than the one that it is used on now.
void CompareBase(const std::string& adapter, BaseType now) {
  const std::string path = JoinPath(adapter, kRunConfigFile);
  if (adapter.empty() || !PosixEnv().IsFile(path)) return;
  const Result<std::string> text = ReadTextFile(PosixEnv(), path);
  if (!text.ok()) return;
  const Result<RunConfig> trained = ParseRunConfig(*text, path);
  if (!trained.ok() || trained->model.base_dtype == BaseType::kAuto || trained->model.base_dtype == now) return;
  const std::string_view then = ToString(*FormatOf(trained->model.base_dtype));
  LogInfo(fmt::format(
      "base        {}; {} was trained on a base in {}: --base_dtype {} has it so",
      now == BaseType::kAuto ? std::string("not quantised") : fmt::format("in {}", ToString(*FormatOf(now))), adapter,
      then, then));
}

}  // namespace

std::vector<Option> OptionsOf(ModelChoice& choice, const char* adapter) {
  return {{.name = "model",
           .target = &choice.model,
           .help = "model folder, GGUF file, adapter folder, output folder of a run, or checkpoint; or a name in the "
                   "Hugging Face "
                   "cache"},
          {.name = "base",
           .target = &choice.base,
           .help = "base model of an adapter, instead of the one in its configuration"},
          {.name = "adapter", .target = &choice.adapter, .help = adapter},
          ChatTemplateOption(choice.chat_template)};
}

std::vector<OptionGroup> ModelOptions::Groups() {
  OptionGroup memory{"Memory", {}};
  for (OptionGroup& group : RunOptionGroups(run)) {
    for (Option& option : group.options) {
      if (IsOfInference(option.name)) memory.options.push_back(std::move(option));
    }
  }
  OptionGroup model{"Model", OptionsOf(choice, "adapter to put on top of the model")};
  model.options.push_back({.name = "dtype",
                           .target = ChoiceOf(dtype, {"auto", "bf16", "f32"}),
                           .help = "type to compute in",
                           .default_text = "bf16 if the processor has it, else f32"});
  model.options.push_back({.name = "base_dtype",
                           .target = ChoiceOf(base_dtype, {"auto", "int8", "nf4"}),
                           .help = "how to keep the weights of linear modules and experts: int8 takes half of bf16's "
                                   "memory, nf4 little more than a quarter",
                           .default_text = "as computed"});
  model.options.push_back({.name = "embedding_dtype",
                           .target = ChoiceOf(embedding_dtype, {"auto", "int8"}),
                           .help = "how to keep the token embedding and the head: int8 takes half of bf16's memory",
                           .default_text = "as computed"});
  model.options.push_back({.name = "device",
                           .target = ChoiceOf(device, {"auto", "cpu", "gpu"}),
                           .help = "device to compute on",
                           .default_text = "gpu if there is one, else cpu"});
  model.options.push_back({.name = "threads",
                           .target = &threads,
                           .help = "number of compute threads",
                           .range = {.at_least = 1, .at_most = kMaxThreads},
                           .default_text = "one per core"});
  return {std::move(model), std::move(memory)};
}

Status ModelOptions::ResolveBase(const OpenedModel& model) {
  TEMPER_ASSIGN_OR_RETURN(base_dtype, BaseTypeOf(base_dtype, model.model().facts().modules_format));
  const ModelFacts& facts = model.model().facts();
  const bool quantised = facts.modules_format || (facts.experts_format && facts.experts_format->quantised());
  CompareBase(model.source().adapter_folder, base_dtype);
  if (dtype == ComputeType::kAuto && quantised) dtype = ComputeType::kBf16;
  TEMPER_RETURN_IF_ERROR(CheckKeptType("base_dtype", base_dtype, dtype));
  return CheckKeptType("embedding_dtype", embedding_dtype, dtype);
}

BaseFormat ModelOptions::Base(const ModelFacts& facts, const ProcessorChoice& processor) const {
  return BaseFormatOf(facts, FormatOf(base_dtype), FormatOf(embedding_dtype), ResolvedDType(processor),
                      processor.on_gpu());
}

DType ModelOptions::ResolvedDType(const ProcessorChoice& processor) const {
  const bool kept = base_dtype != BaseType::kAuto || embedding_dtype != BaseType::kAuto;
  if (dtype == ComputeType::kAuto) return kept ? DType::kBF16 : processor.dtype();
  return dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

int ModelOptions::ResolvedThreads() const {
  return static_cast<int>(threads.value_or(AvailableProcessors()));
}

}  // namespace temper
