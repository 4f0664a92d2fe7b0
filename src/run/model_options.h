// The options by which every command that uses a trained model names it.
#pragma once

#include <optional>
#include <vector>

#include "config/option_set.h"
#include "config/run_config.h"
#include "run/opened_model.h"
#include "run/processor.h"

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

}  // namespace temper
