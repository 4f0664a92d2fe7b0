#include "cli/train_setup.h"

#include <cstdio>

#include "base/log.h"
#include "cli/machine.h"
#include "comm/local/launch.h"
#include "train/foreign_names.h"
#include "train/run_options.h"

namespace temper {
namespace {

RunConfig::Lora LoraOf(const AdapterConfig& a) {
  RunConfig::Lora lora{.r = a.r,
                       .alpha = a.alpha,
                       .dropout = a.dropout,
                       .exclude_modules = a.exclude_modules,
                       .use_rslora = a.rslora,
                       .rank_pattern = a.rank_pattern,
                       .alpha_pattern = a.alpha_pattern};
  if (a.target_regex.empty()) {
    lora.target_modules = a.target_modules;
  } else {
    lora.target_modules = a.target_regex;
  }
  if (!a.exclude_regex.empty()) lora.exclude_modules = a.exclude_regex;
  return lora;
}

// One copy of this program per rank, each with its share of the cores.
Result<int> StartRanks(const RunConfig& config) {
  LaunchSpec spec{.ranks = static_cast<int>(config.machine.nprocs)};
  // Threads that spin at the end of a loop take the core that another rank is waiting for.
  if (config.machine.nprocs > 1) spec.environment.emplace_back("OMP_WAIT_POLICY", "passive");
  TEMPER_ASSIGN_OR_RETURN(const LaunchResult result, Launch(spec));
  if (!result.message.empty()) LogError(result.message);
  return result.exit_code;
}

// The first rank claims the folder for all. Returns the checkpoint to go on from, empty for none.
Result<std::string> ClaimFolder(const Ranks& ranks, const RunConfig& config, std::optional<OutputFolder>* folder) {
  Status claimed;
  std::string resume_from;
  if (ranks.first()) {
    auto result = OutputFolder::Claim(PosixEnv(), config);
    claimed = result.status();
    if (result.ok()) {
      folder->emplace(std::move(*result));
      resume_from = (*folder)->resume_from().value_or("");
    }
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(claimed));
  return ranks.FromFirst(resume_from);
}

}  // namespace

Result<std::optional<TrainSetup>> SetUpTraining(const Arguments& arguments, Purpose purpose, const char* usage,
                                                std::vector<OptionGroup> more, int* exit_code,
                                                const FactsOf& facts_of) {
  TEMPER_ASSIGN_OR_RETURN(Ranks ranks, Ranks::Join());
  RunConfig config;
  std::vector<OptionGroup> groups = RunOptionGroups(config);
  for (OptionGroup& group : more) groups.push_back(std::move(group));
  const OptionSet options(std::move(groups), ForeignNames());
  TEMPER_ASSIGN_OR_RETURN(const CommandLine line, ReadCommandLine(arguments, options));
  if (line.help) {
    std::fputs(HelpText(usage, options).c_str(), stdout);
    return std::optional<TrainSetup>();
  }
  TEMPER_RETURN_IF_ERROR(ReadOptions(PosixEnv(), line, options));
  TEMPER_RETURN_IF_ERROR(Validate(config, purpose));
  if (purpose == Purpose::kTrain && ranks.alone() && config.machine.nprocs > 1) {
    TEMPER_ASSIGN_OR_RETURN(*exit_code, StartRanks(config));
    return std::optional<TrainSetup>();
  }

  std::optional<OutputFolder> folder;
  std::optional<ResumePoint> resume;
  if (purpose == Purpose::kTrain) {
    TEMPER_ASSIGN_OR_RETURN(const std::string resume_from, ClaimFolder(ranks, config, &folder));
    if (!resume_from.empty()) {
      TEMPER_ASSIGN_OR_RETURN(resume, ResumePoint::Open(PosixEnv(), resume_from));
      resume->KeepChoices(config);
    }
  }
  const bool all_from_checkpoint = resume && config.model.method == TrainMethod::kFull;
  TEMPER_ASSIGN_OR_RETURN(
      OpenedModel model,
      OpenedModel::Open(PosixEnv(), {.model = config.model.model,
                                     .base = config.model.base,
                                     .adapter = config.model.adapter,
                                     .needs_weights = purpose == Purpose::kTrain && !config.model.from_scratch &&
                                                      !all_from_checkpoint}));
  if (folder) TEMPER_RETURN_IF_ERROR(folder->CheckKeeps("base model", model.folder()));
  RunFacts facts = MachineFacts();
  if (facts_of) {
    TEMPER_ASSIGN_OR_RETURN(facts, facts_of());
  }
  facts.model_max_seq_len = model.model().facts().max_positions;
  facts.positions_are_learned = model.model().facts().positions_are_learned;
  if (model.adapter()) facts.adapter = LoraOf(*model.adapter());
  TEMPER_ASSIGN_OR_RETURN(ResolvedRun run, Resolve(config, facts));
  if (resume) TEMPER_RETURN_IF_ERROR(resume->CheckSettings(run.config));
  for (const std::string& warning : run.warnings) LogWarning(warning);
  for (const std::string& note : model.model().facts().training_notes) LogInfo("note        " + note);
  return std::optional<TrainSetup>(
      TrainSetup{std::move(ranks), std::move(run), std::move(model), std::move(folder), std::move(resume)});
}

}  // namespace temper
