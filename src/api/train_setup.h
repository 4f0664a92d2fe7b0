// From settings to a resolved configuration: shared by training and planning.
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "config/validate.h"
#include "run/opened_model.h"
#include "run/output_folder.h"
#include "run/ranks.h"
#include "run/resume.h"
#include "settings/run_config.h"

namespace temper {

// What a run is asked to be. REQUIRES: Validate found nothing in `config`.
struct RunRequest {
  RunConfig config;
  std::string file;  // that the settings were read from, which the run must keep; empty: none
};

struct TrainSetup {
  const Ranks& ranks;
  ResolvedRun run;
  OpenedModel model;
  // Only for `train`, and only on its first rank.
  std::optional<OutputFolder> folder;
  // Only for `train`.
  std::optional<ResumePoint> resume;
  std::string first_adapter = {};  // the folder whose A and B a run begins with (run/residual_model.h); empty: drawn
  // Only for `plan`: what `train` would say of the data's files before it reads them.
  Status data = {};

  // Whether weights come from the model's files: not random, nor all from a checkpoint.
  bool reads_weights() const {
    return !run.config.model.from_scratch && !(resume && run.config.model.method == TrainMethod::kFull);
  }
  // Whether the files give tensors to the result: then they must be there, and the same as when the run began.
  bool keeps_base() const {
    return run.config.model.method == TrainMethod::kLora || model.model().facts().keeps_other_tensors;
  }
};

// Opens the model of a run and resolves what its settings leave open; to train also claims the output folder and opens
// the checkpoint to resume from. `facts_of`: gives the facts for resolving the run, instead of this machine's. `ranks`
// must outlive the result; all of them call this, and get the same result.
using FactsOfRun = std::function<Result<RunFacts>(const RunConfig& config)>;
Result<TrainSetup> SetUpTraining(RunRequest request, Purpose purpose, const Ranks& ranks,
                                 const FactsOfRun& facts_of = nullptr);

}  // namespace temper
