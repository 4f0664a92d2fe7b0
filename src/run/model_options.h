// The options that name a trained model, for every command that uses one.
#pragma once

#include <optional>
#include <vector>

#include "config/option_set.h"
#include "model/base_format.h"
#include "run/opened_model.h"
#include "run/processor.h"
#include "settings/run_config.h"

namespace temper {

// The options that name a trained model, bound to `choice`. `adapter`: help text of --adapter.
std::vector<Option> OptionsOf(ModelChoice& choice, const char* adapter);

struct ModelOptions {
  ModelChoice choice;
  ComputeType dtype = ComputeType::kAuto;
  BaseType base_dtype = BaseType::kAuto, embedding_dtype = BaseType::kAuto;
  DeviceChoice device = DeviceChoice::kAuto;
  std::optional<int64_t> threads;
  RunConfig run;  // only `memory` counts: the limits of the tiers, as for training

  std::vector<OptionGroup> Groups();  // bound to this
  // Sets base_dtype to what it is of this model, and dtype where its files are quantised, which is computed in bf16;
  // checks that base and embedding can be kept as they are asked for.
  Status ResolveBase(const OpenedModel& model);
  // REQUIRES: base_dtype is resolved.
  BaseFormat Base(const ModelFacts& facts, const ProcessorChoice& processor) const;
  DType ResolvedDType(const ProcessorChoice& processor) const;  // likewise
  int ResolvedThreads() const;
};

}  // namespace temper
