#include "api/evaluation.h"

#include <fmt/core.h>

#include <array>
#include <optional>
#include <span>

#include "base/log.h"
#include "base/quantity.h"
#include "checkpoint/training_state.h"
#include "config/run_options.h"
#include "config/task_options.h"
#include "run/ranks.h"
#include "run/reference_model.h"
#include "run/reference_scores.h"
#include "train/evaluation_progress.h"
#include "train/mismatched_kl.h"

namespace temper {

std::vector<OptionGroup> EvaluationSettings::Groups() {
  std::vector<OptionGroup> groups = ForwardSettings::Groups("file to measure on", /*answers=*/true);
  Option of_task = TaskOption(task);
  of_task.help = "what is measured, as it was trained: with preferences their rewards and accuracies";
  of_task.default_text = "by the model's head: the loss of words, classes, rewards";
  groups.push_back({"Task",
                    {std::move(of_task), ReferenceOption(reference, "by default the model without its adapter"),
                     TeacherOption(teacher), TeacherTypeOption(teacher_base_dtype)}});
  for (OptionGroup& group : TaskOptionGroups(tasks)) groups.push_back(std::move(group));
  return groups;
}

namespace {

// Gives the data the scores of the model that answers are compared with, whose weights are in memory afterwards. Rated
// answers are also compared with those to other prompts: the store of these.
Result<std::optional<TokenStore>> ScoreByReference(const std::function<bool()>& stop, ForwardPass& pass) {
  std::optional<TokenStore> mismatched;
  const TokenStore& store = pass.data.dataset.store;
  if (pass.objective->rated) {
    if (store.size() < 2) {
      return InvalidArgument(
          fmt::format("task: {} compares answers with those to other prompts, and here is one alone: give more rows",
                      pass.objective->name));
    }
    const std::vector<int32_t> all = store.AllSamples();
    const std::array<std::span<const int32_t>, 1> list = {all};
    mismatched = TokenStore::Mismatched(store, list, pass.row);
  }
  TEMPER_RETURN_IF_ERROR(LoadReference(*pass.reference_model, pass.adapters, pass.rows, pass.Lookup()));
  static constexpr std::array<std::string_view, 1> kOneAnswer = {"rated"};
  const Ranks alone;
  ScoreRequest request{
      .reference = *pass.reference,
      .train = pass.data,
      .mismatched = mismatched ? &*mismatched : nullptr,
      .max_seq_len = pass.row,
      .parts = pass.objective->parts.empty() ? std::span<const std::string_view>(kOneAnswer) : pass.objective->parts,
      .ranks = alone,
      .stop = stop};
  TEMPER_RETURN_IF_ERROR(ScoreReference(request).status());
  return mismatched;
}

}  // namespace

// Warns of settings of the task that are not those of the run that trained the model or its adapter, as the run.yaml
// beside it says: its rewards and losses then mean something else.
void WarnOfOtherSettings(const EvaluationSettings& settings) {
  const ModelChoice& choice = settings.model.choice;
  const std::string path = JoinPath(choice.adapter.empty() ? choice.model : choice.adapter, kRunConfigFile);
  if (settings.task == nullptr || !PosixEnv().IsFile(path)) return;
  const Result<std::string> text = ReadTextFile(PosixEnv(), path);
  if (!text.ok()) return;
  const Result<RunConfig> trained = ParseRunConfig(*text, path);
  if (!trained.ok() || trained->objective.rule != settings.task) return;
  RunConfig now = *trained;
  now.objective.tasks = settings.tasks;
  if (!trained->objective.reference.empty()) now.objective.reference = settings.reference;
  if (settings.task->distills) {
    now.objective.teacher_base_dtype = settings.teacher_base_dtype;
    now.objective.teacher = AbsolutePath(settings.teacher);  // as run.yaml has it
  }
  for (const OptionDifference& d : DifferencesOfTask(*trained, now)) {
    LogWarning(fmt::format("{} is {} here, and {} in {}: to measure as it was trained, add --{} {}", d.name, d.b, d.a,
                           path, d.name, d.a));
  }
}

Result<Evaluation> RunEvaluation(EvaluationSettings settings, const std::function<bool()>& stop) {
  WarnOfOtherSettings(settings);
  const ForwardTask task{.kind = ProgramKind::kEval,
                         .objective = settings.task,
                         .tasks = settings.tasks,
                         .reference = settings.reference,
                         .teacher = settings.teacher,
                         .teacher_base_dtype = settings.teacher_base_dtype};
  TEMPER_ASSIGN_OR_RETURN(const auto pass, OpenForwardPass(std::move(settings), task));
  const TokenStore& store = pass->data.dataset.store;
  std::optional<TokenStore> mismatched;
  std::optional<MismatchedKl> kl;
  if (pass->reference) {
    TEMPER_ASSIGN_OR_RETURN(mismatched, ScoreByReference(stop, *pass));
    if (mismatched) kl.emplace(*pass->reference, *mismatched, pass->row, store.size(), Peers());
  }
  TEMPER_RETURN_IF_ERROR(pass->Load());
  Evaluator evaluator(
      *pass->executor, store, store.AllSamples(), {.max_seq_len = pass->row, .shuffle = false},
      [&](int32_t sample) { return pass->PlaceOf(sample); }, /*peers=*/{}, *pass->objective,
      pass->objective->head == ObjectiveRule::Head::kClasses ? pass->model.model().facts().classes : 0,
      kl ? &*kl : nullptr);
  ProgressDisplay display;
  EvaluationProgress progress(display);
  TEMPER_ASSIGN_OR_RETURN(const EvaluationReport report,
                          evaluator.Run(stop, [&](int64_t done, int64_t rows) { progress.Update(done, rows); }));
  display.Finish();
  LogInfo(fmt::format("eval        {} of {} tokens in {}: {} rows/s, {} tokens/s", Counted(report.rows, "row"),
                      pass->row, ToString(report.time), Grouped(report.rows_per_second()),
                      Grouped(report.tokens_per_second())));
  Evaluation evaluation{.report = report, .of_words = pass->objective->name == Sft().name, .samples = store.size()};
  const std::span<const ReportSpec> specs = pass->objective->reports;
  for (size_t k = 1; k < specs.size(); ++k) evaluation.reports.push_back({specs[k].name, report.reports[k]});
  for (const NamedNumber& number : report.of_classes) evaluation.reports.push_back(number);
  return evaluation;
}

}  // namespace temper
