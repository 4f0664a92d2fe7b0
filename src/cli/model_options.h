// The options by which every command that uses a trained model names it.
#pragma once

#include <optional>
#include <vector>

#include "cli/commands.h"
#include "cli/opened_model.h"
#include "cli/processor.h"
#include "train/option_set.h"
#include "train/run_config.h"

namespace temper {

// What names a trained model. `adapter`: what becomes of an adapter, for help. Bound to `choice`.
std::vector<Option> OptionsOf(ModelChoice& choice, const char* adapter);

struct ModelOptions {
  ModelChoice choice;
  ComputeType dtype = ComputeType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  std::optional<int64_t> threads;
  RunConfig run;  // of which memory says what may lie where, as for training

  std::vector<OptionGroup> Groups();  // bound to this
  DType ResolvedDType(const ProcessorChoice& processor) const;
  int ResolvedThreads() const;
};

// Reads `arguments` into the options of `groups`. False: --help was asked for and printed.
Result<bool> ReadCommandOptions(const Arguments& arguments, std::vector<OptionGroup> groups, const char* usage);

// Error naming the option where a required text is empty.
Status RequireOption(const std::string& value, const char* option);

}  // namespace temper
