#include "cli/model_options.h"

#include <fmt/core.h>

#include <cstdio>

#include "base/team.h"
#include "program/program.h"
#include "train/command_line.h"
#include "train/foreign_names.h"
#include "train/run_options.h"

namespace temper {
namespace {

// Options of training that mean the same where nothing is trained.
bool IsOfInference(const std::string& name) {
  return name == "memory.device" || name == "memory.host" || name == "memory.disk" || name == "memory.placement" ||
         name == "memory.weights";
}

}  // namespace

std::vector<Option> OptionsOf(ModelChoice& choice, const char* adapter) {
  return {{.name = "model",
           .target = &choice.model,
           .help = "model folder, adapter folder, output folder of a run, or checkpoint"},
          {.name = "base",
           .target = &choice.base,
           .help = "base model of an adapter, where its configuration names another place"},
          {.name = "adapter", .target = &choice.adapter, .help = adapter}};
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
                           .default_text = "bf16 where the processor has it, else f32"});
  model.options.push_back({.name = "device",
                           .target = ChoiceOf(device, {"auto", "cpu", "gpu"}),
                           .help = "what to compute on",
                           .default_text = "gpu where one is found, else cpu"});
  model.options.push_back({.name = "threads",
                           .target = &threads,
                           .help = "threads to compute with",
                           .range = {.at_least = 1, .at_most = kMaxThreads},
                           .default_text = "one per core"});
  return {std::move(model), std::move(memory)};
}

DType ModelOptions::ResolvedDType(const ProcessorChoice& processor) const {
  if (dtype == ComputeType::kAuto) return processor.dtype();
  return dtype == ComputeType::kBf16 ? DType::kBF16 : DType::kF32;
}

int ModelOptions::ResolvedThreads() const {
  return static_cast<int>(threads.value_or(AvailableProcessors()));
}

Result<bool> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups, const char* usage) {
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_ASSIGN_OR_RETURN(const CommandLine line, ReadCommandLine(arguments, options));
  if (line.help) {
    std::fputs(HelpText(usage, options).c_str(), stdout);
    return false;
  }
  if (!line.positional.empty()) {
    return InvalidArgument(
        fmt::format("'{}' is no option: this command takes --option value only", line.positional[0]));
  }
  TEMPER_RETURN_IF_ERROR(ApplyCommandLine(line, options));
  TEMPER_RETURN_IF_ERROR(options.CheckRanges());
  return true;
}

Status RequireOption(const std::string& value, const char* option) {
  return value.empty() ? InvalidArgument(fmt::format("--{} is needed; see --help", option)) : OkStatus();
}

}  // namespace temper
