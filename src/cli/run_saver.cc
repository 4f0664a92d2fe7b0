#include "cli/run_saver.h"

#include "format/json.h"

namespace temper {
namespace {

constexpr char kUnloggedLoss[] = "unlogged_loss", kUnloggedSteps[] = "unlogged_steps";

}  // namespace

Status RunSaver::Save(const RunProgress& progress) {
  RunState& state = contents_.state;
  state.step = progress.step;
  state.sampler = {progress.sampler.seed, progress.sampler.epoch, progress.sampler.next_row};
  state.tokens = progress.tokens;
  state.eval_loss = progress.eval_loss;
  state.best_eval_loss = progress.best_eval_loss;
  state.best_step = progress.best_step;
  state.extra = Json::object();
  if (progress.unlogged_steps > 0) {
    state.extra = {{kUnloggedLoss, progress.unlogged_loss}, {kUnloggedSteps, progress.unlogged_steps}};
  }
  contents_.seconds = progress.seconds;
  return writer_.Start(contents_);
}

Result<RunProgress> ProgressOf(const RunState& state, double seconds) {
  RunProgress progress{.step = state.step,
                       .sampler = {state.sampler.seed, state.sampler.epoch, state.sampler.next_row},
                       .tokens = state.tokens,
                       .seconds = seconds,
                       .eval_loss = state.eval_loss,
                       .best_eval_loss = state.best_eval_loss,
                       .best_step = state.best_step};
  const std::string where = "the checkpoint's extra state";
  TEMPER_ASSIGN_OR_RETURN(progress.unlogged_loss, NumberOr(state.extra, kUnloggedLoss, 0, where));
  TEMPER_ASSIGN_OR_RETURN(progress.unlogged_steps, IntOr(state.extra, kUnloggedSteps, 0, where));
  return progress;
}

}  // namespace temper
