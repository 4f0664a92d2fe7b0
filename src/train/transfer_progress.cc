#include "train/transfer_progress.h"

namespace temper {
namespace {

constexpr auto kPatience = std::chrono::seconds(1);            // shorter transfers show nothing
constexpr auto kTransferLineEvery = std::chrono::seconds(10);  // in a pipe

}  // namespace

TransferProgress::TransferProgress(std::string_view what, std::function<Clock::time_point()> now)
    : what_(what), now_(std::move(now)), begin_(now_()), next_line_(begin_ + kPatience) {}

void TransferProgress::Update(Bytes done, Bytes total, std::optional<int64_t> rows) {
  const Clock::time_point now = now_();
  const bool over = done >= total;
  if (!shown_ && (over || now - begin_ < kPatience)) return;
  shown_ = true;
  const double seconds = std::chrono::duration<double>(now - begin_).count();
  ProgressState state{.what = what_, .step = done.v, .total_steps = total.v, .in_bytes = true};
  state.rows = rows;
  if (!over && done.v > 0) {
    state.eta = Seconds{seconds * static_cast<double>((total - done).v) / static_cast<double>(done.v)};
  }
  const bool line = now >= next_line_;
  if (line) next_line_ = now + kTransferLineEvery;
  display_.Update(state, line);
}

}  // namespace temper
