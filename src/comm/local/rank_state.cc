#include "comm/local/rank_state.h"

namespace temper {

std::optional<Lane> RankWaits::HeldUpIn(Lane lane) const {
  const auto waits = [&](Lane l) { return on[static_cast<size_t>(l)] != 0; };
  if (waits(OtherEnd(lane))) return OtherEnd(lane);
  // What that lane does next is for the thread that runs kernels to issue.
  if (waits(Lane::kInline)) return Lane::kInline;
  if (awaited >= 1 && awaited <= kNumLanes && waits(static_cast<Lane>(awaited - 1)))
    return static_cast<Lane>(awaited - 1);
  return std::nullopt;
}

RankWaits WaitsOf(const ControlBlock& control, int i) {
  const RankBlock& block = control.rank(i);
  RankWaits waits{.awaited = block.awaited.load()};
  for (size_t lane = 0; lane < kNumLanes; ++lane) waits.on[lane] = block.sleepers[lane].waiting_for.load();
  return waits;
}

OwnActivity OwnActivityOf(const ControlBlock& control, int i, bool processes) {
  const RankBlock& block = control.rank(i);
  const int pid = block.pid.load();
  OwnActivity own{.activity = ActivityOf(pid, processes ? 0 : block.tid.load())};
  for (uint32_t lane = 0; lane < kNumLanes && processes; ++lane) {
    const Sleeper& sleeper = block.sleepers[lane];
    if (sleeper.waiting_for.load() == 0) continue;
    const ProcessActivity waits = ActivityOf(pid, sleeper.tid.load());
    own.waiting |= 1u << lane;
    own.activity.ticks -= waits.ticks;
    own.activity.bytes -= waits.bytes;
  }
  return own;
}

}  // namespace temper
