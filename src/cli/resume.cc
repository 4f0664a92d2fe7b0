#include "cli/resume.h"

#include <fmt/format.h>

#include "base/log.h"
#include "checkpoint/checkpoint_reader.h"
#include "checkpoint/training_state.h"
#include "cli/run_saver.h"
#include "train/run_options.h"

namespace temper {

Result<RunProgress> Resume(const std::string& checkpoint, const RunConfig& config, const CheckpointContents& now,
                           const Program& train, const BufferLookup& buffer) {
  TEMPER_ASSIGN_OR_RETURN(const CheckpointReader reader, CheckpointReader::Open(PosixEnv(), checkpoint));
  const Manifest& saved = reader.manifest();
  TEMPER_ASSIGN_OR_RETURN(const std::string yaml, reader.ReadText(kRunConfigFile));
  TEMPER_ASSIGN_OR_RETURN(const RunConfig before, ParseRunConfig(yaml, JoinPath(checkpoint, kRunConfigFile)));
  if (const auto changed = ResultChangingDifferences(before, config); !changed.empty()) {
    std::string names;
    for (const std::string& name : changed) names += (names.empty() ? "" : ", ") + name;
    return InvalidArgument(
        fmt::format("{} was trained with other settings: {}. Resume with the same (they are in its "
                    "run.yaml), or start a new run from it with --model {}",
                    checkpoint, names, checkpoint));
  }
  if (saved.state.data_fingerprint != now.state.data_fingerprint) {
    return InvalidArgument(
        fmt::format("{}: the data is not what this run was trained on so far: {} has changed since (or "
                    "the tokenizer or chat template has)",
                    checkpoint, config.data.data));
  }
  if (const std::string differences = DescribeDifferences(saved.identity, now.identity); !differences.empty()) {
    LogWarning(
        fmt::format("the run goes on in another environment ({}): results will not be bit-identical to a run that "
                    "was never stopped",
                    differences));
  }
  TEMPER_RETURN_IF_ERROR(RestoreTrainingState(reader, train, buffer));
  return ProgressOf(saved.state, saved.seconds);
}

}  // namespace temper
