#include "comm/local/rendezvous.h"

#include <fmt/core.h>

namespace temper {

Rendezvous::Rendezvous(const ControlBlock& control, int self, Lane lane, bool processes)
    : control_(control),
      self_(self),
      lane_(lane),
      wait_(control, self, lane, processes),
      expected_(static_cast<size_t>(control.ranks()), 0) {
  readers_.reserve(static_cast<size_t>(control.ranks()));
}

Status Rendezvous::Publish(Meeting meeting, uint64_t fingerprint) {
  TEMPER_RETURN_IF_ERROR(Check());
  for (const int peer : readers_) TEMPER_RETURN_IF_ERROR(Await(peer));
  readers_.clear();
  own().meeting = meeting;
  own().fingerprint = fingerprint;
  return OkStatus();
}

void Rendezvous::Signal(const HostGroup& group) {
  for (const int peer : group.members) {
    if (peer == self_) continue;
    std::atomic<uint32_t>& count = control_.signals(lane_, peer, self_);
    // Sequentially consistent, as the sleeper's flag and its second look are: one of the two sees the other.
    count.store(count.load(std::memory_order_relaxed) + 1);
    Sleeper& sleeper = control_.sleeper(peer, lane_);
    if (sleeper.sleeping.load() != 0) RingDoorbell(sleeper);
    ++expected_[static_cast<size_t>(peer)];
  }
}

Status Rendezvous::Arrive(const HostGroup& group) {
  Signal(group);
  const Published& mine = own();
  for (const int peer : group.members) {
    if (peer == self_) continue;
    TEMPER_RETURN_IF_ERROR(Await(peer));
    const Published& theirs = control_.published(peer, lane_);
    if (theirs.meeting != mine.meeting || theirs.fingerprint != mine.fingerprint) {
      return Stop(InvalidArgument(fmt::format(
          "{} is in {}, {} in {}{}: ranks must run the same program", control_.NameOf(self_), ToString(mine.meeting),
          control_.NameOf(peer), ToString(theirs.meeting), theirs.meeting == mine.meeting ? " of other tensors" : "")));
    }
  }
  return OkStatus();
}

Status Rendezvous::Depart(const HostGroup& group) {
  Signal(group);
  for (const int peer : group.members) {
    if (peer != self_) TEMPER_RETURN_IF_ERROR(Await(peer));
  }
  return OkStatus();
}

void Rendezvous::Leave(const HostGroup& group) {
  Signal(group);
  for (const int peer : group.members) {
    if (peer != self_) readers_.push_back(peer);
  }
}

}  // namespace temper
