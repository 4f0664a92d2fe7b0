// TrainingRun: everything that a training owns, in order of creation; TrainOnRanks fills it step by step. One
// thread.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "api/train_setup.h"
#include "compile/run/compiled_run.h"
#include "data/dataset.h"
#include "data/packing.h"
#include "run/calibration.h"
#include "run/data.h"
#include "run/engine.h"
#include "run/machine_report.h"
#include "run/rates_of_run.h"
#include "train/trainer.h"

namespace temper {

struct TrainingRun {
  TrainSetup setup;
  RankMemory available;
  std::optional<RatesOfRun> rates;
  CompiledRun compiled;
  RunData data;
  std::optional<RunData> eval_data;
  DataSplit split;
  // Of rated answers: each after another's prompt.
  std::optional<TokenStore> mismatched, eval_mismatched;
  RunEngine engine;
  std::optional<int64_t> asked_accumulation;  // SavedBatch

  const RunConfig& config() const { return setup.run.config; }
  PackingOptions Packing() const;
  int64_t RowsPerStep() const;
  // The evaluation data, or the training data of which a part is held out.
  const RunData& held_out() const { return eval_data ? *eval_data : data; }
  Peers peers() const;
  bool evaluates() const { return eval_data || !split.evaluation.empty(); }
  // For values that do not fit in memory. By default with the checkpoints, which have a similar size.
  std::string SpillFolder() const;
  RunOnMachine OnMachine() const;
};

}  // namespace temper
