// The options that name a trained model, for every command that uses one.
#pragma once

#include <optional>
#include <vector>

#include "config/option_set.h"
#include "config/run_config.h"
#include "run/opened_model.h"
#include "run/processor.h"

namespace temper {

// The options that name a trained model, bound to `choice`. `adapter`: help text of --adapter.
std::vector<Option> OptionsOf(ModelChoice& choice, const char* adapter);

struct ModelOptions {
  ModelChoice choice;
  ComputeType dtype = ComputeType::kAuto;
  BaseType base_dtype = BaseType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  std::optional<int64_t> threads;
  RunConfig run;  // only `memory` counts: the limits of the tiers, as for training

  std::vector<OptionGroup> Groups();  // bound to this
  // Whether the base can be kept as base_dtype says.
  Status CheckBase(const ProcessorChoice& processor) const;
  DType ResolvedDType(const ProcessorChoice& processor) const;
  int ResolvedThreads() const;
};

}  // namespace temper
