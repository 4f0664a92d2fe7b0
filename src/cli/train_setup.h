// From the command line to a resolved configuration: shared by `train` and `plan`.
#pragma once

#include <functional>
#include <optional>

#include "cli/commands.h"
#include "config/command_line.h"
#include "config/option_set.h"
#include "config/validate.h"
#include "run/opened_model.h"
#include "run/output_folder.h"
#include "run/ranks.h"
#include "run/resume.h"
#include "settings/run_config.h"

namespace temper {

struct TrainSetup {
  const Ranks& ranks;
  ResolvedRun run;
  OpenedModel model;
  // Only for `train`, and only on its first rank.
  std::optional<OutputFolder> folder;
  // Only for `train`.
  std::optional<ResumePoint> resume;

  // Whether weights come from the model's files: not random, nor all from a checkpoint.
  bool reads_weights() const {
    return !run.config.model.from_scratch && !(resume && run.config.model.method == TrainMethod::kFull);
  }
  // Whether the files give tensors to the result: then they must be there, and the same as when the run began.
  bool keeps_base() const {
    return run.config.model.method == TrainMethod::kLora || model.model().facts().keeps_other_tensors;
  }
};

// Reads arguments over an optional YAML file into a configuration, opens its model and resolves what was left open; for
// `train` also claims the output folder and opens the checkpoint to resume from. Returns nullopt if the command is
// done: --help was given and printed, or with nprocs the ranks were started and have ended, with `exit_code`. `more`:
// options that the command adds. `facts_of`: called once options are read; gives the facts for resolving the run,
// instead of this machine's. `ranks` must outlive the result; all of them call this, and get the same result.
using FactsOf = std::function<Result<RunFacts>(const RunConfig& config)>;
Result<std::optional<TrainSetup>> SetUpTraining(const Arguments& arguments, Purpose purpose, const char* usage,
                                                const Ranks& ranks, std::vector<OptionGroup> more = {},
                                                int* exit_code = nullptr, const FactsOf& facts_of = nullptr);

}  // namespace temper
