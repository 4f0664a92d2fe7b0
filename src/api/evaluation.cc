#include "api/evaluation.h"

#include <fmt/core.h>

#include "base/log.h"
#include "base/quantity.h"
#include "train/evaluation_progress.h"

namespace temper {

Result<Evaluation> RunEvaluation(EvaluationSettings settings, const std::function<bool()>& stop) {
  TEMPER_ASSIGN_OR_RETURN(const auto pass, OpenForwardPass(std::move(settings), ProgramKind::kEval));
  const TokenStore& store = pass->data.dataset.store;
  Evaluator evaluator(
      *pass->executor, store, store.AllSamples(), {.max_seq_len = pass->row, .shuffle = false},
      [&](int32_t sample) { return pass->PlaceOf(sample); }, /*peers=*/{}, *pass->objective,
      pass->objective->head == ObjectiveRule::Head::kClasses ? pass->model.model().facts().classes : 0);
  ProgressDisplay display;
  EvaluationProgress progress(display);
  TEMPER_ASSIGN_OR_RETURN(const EvaluationReport report,
                          evaluator.Run(stop, [&](int64_t done, int64_t rows) { progress.Update(done, rows); }));
  display.Finish();
  LogInfo(fmt::format("eval        {} of {} tokens in {}: {} rows/s, {} tokens/s", Counted(report.rows, "row"),
                      pass->row, ToString(report.time), Grouped(report.rows_per_second()),
                      Grouped(report.tokens_per_second())));
  Evaluation evaluation{
      .report = report, .of_words = pass->objective->head == ObjectiveRule::Head::kVocabulary, .samples = store.size()};
  const std::span<const ReportSpec> specs = pass->objective->reports;
  for (size_t k = 1; k < specs.size(); ++k) evaluation.reports.push_back({specs[k].name, report.reports[k]});
  for (const NamedNumber& number : report.of_classes) evaluation.reports.push_back(number);
  return evaluation;
}

}  // namespace temper
