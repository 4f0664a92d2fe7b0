#include "cli/run_saver.h"

namespace temper {

Status RunSaver::Save(const RunProgress& progress, std::optional<double> eval_loss) {
  RunState& state = contents_.state;
  state.step = progress.step;
  state.sampler = {progress.sampler.seed, progress.sampler.epoch, progress.sampler.next_row};
  state.tokens = progress.tokens;
  state.eval_loss = eval_loss;
  state.best_eval_loss = progress.best_eval_loss;
  state.best_step = progress.best_step;
  contents_.seconds = progress.seconds;
  return writer_.Start(contents_);
}

RunProgress ProgressOf(const RunState& state, double seconds) {
  return {.step = state.step,
          .sampler = {state.sampler.seed, state.sampler.epoch, state.sampler.next_row},
          .tokens = state.tokens,
          .seconds = seconds,
          .best_eval_loss = state.best_eval_loss,
          .best_step = state.best_step};
}

}  // namespace temper
