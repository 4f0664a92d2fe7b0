#include "run/saver.h"

#include <fmt/core.h>

#include "format/json.h"

namespace temper {
namespace {

constexpr char kUnloggedLoss[] = "unlogged_loss", kUnloggedSteps[] = "unlogged_steps",
               kUnloggedReports[] = "unlogged_reports";
constexpr char kEvalsWithoutGain[] = "evals_without_gain";
// Where the loss stands to its start (train/divergence.h).
constexpr char kDivergence[] = "divergence";
constexpr char kStart[] = "start", kUnmoved[] = "unmoved", kMoved[] = "moved", kAbove[] = "above";
constexpr char kDataRanks[] = "data_ranks";  // absent: 1
constexpr char kAskedAccumulation[] = "asked_gradient_accumulation_steps";
constexpr char kExtra[] = "the checkpoint's extra state";

constexpr Seconds kTurn{0.1};

Json ToJson(const Divergence& d) {
  return {{kStart, d.start}, {kUnmoved, d.unmoved}, {kMoved, d.moved}, {kAbove, d.above}};
}

// Absent in a checkpoint of an older Temper.
Result<Divergence> DivergenceOf(const Json& extra) {
  const std::string where = fmt::format("{}, '{}'", kExtra, kDivergence);
  Divergence d;
  const Json* const json = FindValue(extra, kDivergence);
  if (json == nullptr) return d;
  const Json* const start = FindValue(*json, kStart);
  if (start == nullptr || !start->is_array()) return Corrupt(fmt::format("{} has no list '{}'", where, kStart));
  for (const Json& loss : *start) {
    if (!loss.is_number()) return Corrupt(fmt::format("{}: '{}' holds what is no number", where, kStart));
    d.start.push_back(loss.get<double>());
  }
  TEMPER_ASSIGN_OR_RETURN(d.unmoved, IntOr(*json, kUnmoved, 0, where));
  TEMPER_ASSIGN_OR_RETURN(d.moved, BoolOr(*json, kMoved, false, where));
  TEMPER_ASSIGN_OR_RETURN(d.above, IntOr(*json, kAbove, 0, where));
  const auto losses = static_cast<int64_t>(d.start.size());
  if (losses < 1 || losses > Divergence::kStart || d.unmoved < 1 || d.unmoved > losses || d.above < 0) {
    return Corrupt(fmt::format("{}: {} of {} losses, {} {}", where, kUnmoved, losses, kAbove, d.above));
  }
  return d;
}

}  // namespace

Status RunSaver::Save(const RunProgress& progress) {
  RunState& state = contents_.state;
  state.step = progress.step;
  state.sampler = {progress.sampler.seed, progress.sampler.epoch, progress.sampler.next_row};
  state.tokens = progress.tokens;
  state.eval_loss = progress.eval_loss;
  state.best_eval_loss.reset();
  state.best_by.reset();
  if (const BestEvaluation& best = progress.best; best.by.is_loss()) {
    state.best_eval_loss = best.value;
  } else {
    state.best_by = {best.by.name, best.by.greater_is_better, progress.judged, best.value};
  }
  state.best_step = progress.best.step;
  state.extra = Json::object();
  if (progress.unlogged_steps > 0) {
    state.extra = {{kUnloggedLoss, progress.unlogged_loss}, {kUnloggedSteps, progress.unlogged_steps}};
  }
  const ReportValues& reports = progress.unlogged_reports;
  if (std::any_of(reports.begin(), reports.end(), [](double sum) { return sum != 0; })) {
    state.extra[kUnloggedReports] = reports;
  }
  if (progress.best.without_gain > 0) state.extra[kEvalsWithoutGain] = progress.best.without_gain;
  if (!progress.divergence.start.empty()) state.extra[kDivergence] = ToJson(progress.divergence);
  if (batch_.data_ranks > 1) state.extra[kDataRanks] = batch_.data_ranks;
  if (batch_.asked_accumulation) state.extra[kAskedAccumulation] = *batch_.asked_accumulation;
  contents_.seconds = progress.seconds;
  saved_ = true;
  if (ranks_.alone()) return writer_.Start(contents_);
  TEMPER_RETURN_IF_ERROR(Finish());
  TEMPER_RETURN_IF_ERROR(ranks_.Agree(writer_.Prepare(contents_)));
  writer_.Launch();
  return OkStatus();
}

Status RunSaver::Finish() {
  if (ranks_.alone()) return writer_.Finish();
  // Waits in short turns, with a collective after each: a slow disk is fine, but a dead rank must be noticed.
  for (double running = 1; running > 0;) {
    running = writer_.FinishWithin(kTurn) ? 0 : 1;
    TEMPER_RETURN_IF_ERROR(ranks_.Agree(running > 0 ? OkStatus() : writer_.Finish()));
    TEMPER_RETURN_IF_ERROR(ranks_.communicator()->AllReduceMax({&running, 1}));
  }
  return OkStatus();
}

// An error of the save comes with the next one, or with Finish.
std::optional<Seconds> RunSaver::LastTime() {
  if (!saved_ || !writer_.FinishWithin(Seconds{0})) return std::nullopt;
  return Seconds{writer_.last_timing().until_durable};
}

namespace {

Result<ReportValues> UnloggedReportsOf(const Json& extra) {
  ReportValues values = {};
  const auto list = extra.find(kUnloggedReports);
  if (list == extra.end()) return values;
  const bool numbers = list->is_array() && list->size() <= values.size() &&
                       std::all_of(list->begin(), list->end(), [](const Json& v) { return v.is_number(); });
  if (!numbers) return Corrupt(fmt::format("{}: {} is not a list of numbers", kExtra, kUnloggedReports));
  for (size_t k = 0; k < list->size(); ++k) values[k] = (*list)[k].get<double>();
  return values;
}

}  // namespace

Result<RunProgress> ProgressOf(const RunState& state, double seconds) {
  RunProgress progress{.step = state.step,
                       .sampler = {state.sampler.seed, state.sampler.epoch, state.sampler.next_row},
                       .tokens = state.tokens,
                       .seconds = seconds,
                       .eval_loss = state.eval_loss,
                       .judged = state.eval_loss,
                       .best = {.value = state.best_eval_loss, .step = state.best_step}};
  if (const auto& by = state.best_by) {
    progress.judged = by->value;
    progress.best.by = {by->metric, by->greater_is_better};
    progress.best.value = by->best;
  }
  TEMPER_ASSIGN_OR_RETURN(progress.unlogged_loss, NumberOr(state.extra, kUnloggedLoss, 0, kExtra));
  TEMPER_ASSIGN_OR_RETURN(progress.unlogged_steps, IntOr(state.extra, kUnloggedSteps, 0, kExtra));
  TEMPER_ASSIGN_OR_RETURN(progress.unlogged_reports, UnloggedReportsOf(state.extra));
  TEMPER_ASSIGN_OR_RETURN(progress.best.without_gain, IntOr(state.extra, kEvalsWithoutGain, 0, kExtra));
  TEMPER_ASSIGN_OR_RETURN(progress.divergence, DivergenceOf(state.extra));
  return progress;
}

Result<SavedBatch> SavedBatchOf(const RunState& state) {
  SavedBatch batch;
  TEMPER_ASSIGN_OR_RETURN(batch.data_ranks, IntOr(state.extra, kDataRanks, 1, kExtra));
  if (batch.data_ranks < 1) return Corrupt(fmt::format("{}: '{}' is {}", kExtra, kDataRanks, batch.data_ranks));
  if (state.extra.contains(kAskedAccumulation)) {
    TEMPER_ASSIGN_OR_RETURN(batch.asked_accumulation, IntOr(state.extra, kAskedAccumulation, 0, kExtra));
  }
  return batch;
}

}  // namespace temper
