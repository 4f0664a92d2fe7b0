#include "train/evaluation_progress.h"

namespace temper {
namespace {

constexpr auto kLineEvery = std::chrono::seconds(10);

}  // namespace

EvaluationProgress::EvaluationProgress(ProgressDisplay& display, std::function<Clock::time_point()> now,
                                       std::string_view what)
    : display_(display), now_(std::move(now)), what_(what), begin_(now_()), next_line_(begin_ + kLineEvery) {}

void EvaluationProgress::Update(int64_t done, int64_t rows) {
  const Clock::time_point now = now_();
  ProgressState state{.what = what_, .step = done, .total_steps = rows};
  if (done > 0) {
    const double seconds = std::chrono::duration<double>(now - begin_).count();
    state.eta = Seconds{seconds * static_cast<double>(rows - done) / static_cast<double>(done)};
  }
  const bool line = now >= next_line_;
  if (line) next_line_ = now + kLineEvery;
  display_.Update(state, line);
}

}  // namespace temper
