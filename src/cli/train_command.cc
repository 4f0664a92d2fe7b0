// temper train: a run from the command line, on the ranks that this process is one of.
#include <csignal>

#include "api/train.h"
#include "base/log.h"
#include "base/stop_signal.h"
#include "cli/command_options.h"
#include "cli/commands.h"
#include "cli/run_line.h"
#include "config/run_options.h"

namespace temper {
namespace {

constexpr char kTrainUsage[] =
    "usage: temper train [RUN.yaml] --model FOLDER --data FILE --output_dir FOLDER [--option value ...]\n\n"
    "Fine-tunes a model. Every key of the YAML file is also an option; the command line overrides the file.\n";

// Stops the run by the signals of base/stop_signal.h. Until the first step these end the process.
class StopBySignal final : public StopControl {
 public:
  explicit StopBySignal(const Ranks& ranks) : ranks_(ranks) {}

  bool Asked() const override { return steps_ && StopSignal() != 0; }
  // A launcher of several hosts may send a signal because a rank has died: then no step will be finished.
  bool IsTold() const override { return ranks_.alone() || ranks_.of_machine().launched; }
  void StepsBegin() override {
    InstallStopHandler(/*tell_at_once=*/IsTold());
    steps_ = true;
  }
  void EndsEarly() override {
    if (!ranks_.alone()) IgnoreStopSignals();
  }

 private:
  const Ranks& ranks_;
  bool steps_ = false;
};

int CodeOfEnd(const TrainResult& result) {
  switch (result.end) {
    case TrainResult::End::kDone:
      break;
    case TrainResult::End::kStopped:
      return StopSignal() == SIGINT ? kExitStoppedByInt : kExitStoppedByTerm;
    case TrainResult::End::kDiverged:
      return kExitDiverged;
  }
  return 0;
}

Result<int> TrainAs(const Ranks& ranks, const Arguments& arguments) {
  const auto line = ReadRunLine(arguments, Purpose::kTrain, kTrainUsage, /*prints_help=*/ranks.first());
  TEMPER_RETURN_IF_ERROR(ranks.Agree(line.status()));
  if (!*line) return 0;
  const int64_t nprocs = (*line)->config.machine.nprocs;
  if (ranks.alone() && nprocs > 1) return StartRanks(static_cast<int>(nprocs));
  StopBySignal stop(ranks);
  TEMPER_ASSIGN_OR_RETURN(const TrainResult result, TrainOnRanks(**line, ranks, {.stop = stop}));
  return CodeOfEnd(result);
}

Result<int> TrainOnRank(const Arguments& arguments) {
  ExitOnStopSignals(kExitStoppedByTerm, /*waits=*/Ranks::StartedBySrun());
  TEMPER_ASSIGN_OR_RETURN(const Ranks ranks, Ranks::Join());
  return ranks.End(TrainAs(ranks, arguments));
}

struct TrainSettings {
  RunConfig run;

  std::vector<OptionGroup> Groups() { return RunOptionGroups(run); }
};

}  // namespace

const Command kTrainCommand = {.name = "train",
                               .summary = "fine-tune a model (LoRA or full)",
                               .usage = kTrainUsage,
                               .first_word = FirstWord::kYamlFile,
                               .words = "",
                               .run = TrainOnRank,
                               .read_options = ReadOptionsOf<TrainSettings>,
                               .writes_files = true};

}  // namespace temper
