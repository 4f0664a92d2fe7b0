#include "comm/local/host_rank.h"

#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"

namespace temper {
namespace {

HostGroup Everybody(int ranks, int self) {
  HostGroup group{.index = self};
  for (int i = 0; i < ranks; ++i) group.members.push_back(i);
  return group;
}

// NaN where either is: what agreement on a finite loss needs.
double Larger(double a, double b) {
  return b > a || std::isnan(b) ? b : a;
}

// Calls body(offset, count) for runs of [0, size) that fit into a mailbox, at least once.
template <class Body>
Status InMailboxes(size_t size, const Body& body) {
  constexpr auto kMost = static_cast<size_t>(kMailboxBytes.v);
  size_t at = 0;
  do {
    const size_t count = std::min(size - at, kMost);
    TEMPER_RETURN_IF_ERROR(body(at, count));
    at += count;
  } while (at < size);
  return OkStatus();
}

}  // namespace

HostRank::HostRank(std::shared_ptr<HostMemory> memory, int self, int global_rank)
    : memory_(std::move(memory)),
      everybody_(Everybody(control().ranks(), self)),
      inline_(control(), self, Lane::kInline, memory_->shared()),
      background_(control(), self, Lane::kBackground, memory_->shared()),
      soon_(control(), self, Lane::kSoon, memory_->shared()),
      arenas_(*memory_, self),
      transfers_(control(), arenas_, self, memory_->shared()),
      beside_(control(), self, Lane::kInline, memory_->shared()) {
  TEMPER_CHECK(self >= 0 && self < control().ranks()) << self << " of " << control().ranks();
  RankBlock& block = control().rank(self);
  block.global_rank.store(global_rank);
  block.tid.store(static_cast<int32_t>(syscall(SYS_gettid)));
  block.pid.store(getpid());
  control().AddProcessors();
}

HostRank::~HostRank() {
  control().rank(self()).left.store(1);
}

Status HostRank::Check() {
  if (control().stopped()) return control().Cause();
  const Status found = beside_.LookAround();
  if (found.ok()) return found;
  control().Stop(found, control().rank(self()).global_rank.load());
  return control().Cause();
}

Status HostRank::AllGather(const HostGroup& group, Meeting meeting, std::span<const std::byte> mine,
                           std::span<std::byte> all) {
  TEMPER_CHECK(all.size() == mine.size() * group.members.size()) << all.size() << " of " << mine.size();
  return InMailboxes(mine.size(), [&](size_t at, size_t count) -> Status {
    TEMPER_RETURN_IF_ERROR(inline_.Publish(meeting, mine.size()));
    if (count > 0) std::memcpy(inline_.own().mailbox, mine.data() + at, count);
    TEMPER_RETURN_IF_ERROR(inline_.Arrive(group));
    for (int i = 0; i < group.size() && count > 0; ++i) {
      std::memcpy(all.data() + static_cast<size_t>(i) * mine.size() + at, inline_.of(group, i).mailbox, count);
    }
    inline_.Leave(group);
    return OkStatus();
  });
}

Status HostRank::AllReduce(const HostGroup& group, Meeting meeting, std::span<double> values) {
  return InMailboxes(values.size_bytes(), [&](size_t at, size_t count) -> Status {
    TEMPER_RETURN_IF_ERROR(inline_.Publish(meeting, values.size()));
    const std::span<double> part = values.subspan(at / sizeof(double), count / sizeof(double));
    if (count > 0) std::memcpy(inline_.own().mailbox, part.data(), count);
    TEMPER_RETURN_IF_ERROR(inline_.Arrive(group));
    for (int i = 0; i < group.size(); ++i) {
      const auto* const theirs = reinterpret_cast<const double*>(inline_.of(group, i).mailbox);
      for (size_t k = 0; k < part.size(); ++k) {
        if (i == 0) {
          part[k] = theirs[k];
        } else {
          part[k] = meeting == Meeting::kMax ? Larger(part[k], theirs[k]) : part[k] + theirs[k];
        }
      }
    }
    inline_.Leave(group);
    return OkStatus();
  });
}

Status HostRank::Broadcast(const HostGroup& group, std::span<std::byte> bytes, int root) {
  TEMPER_CHECK(root >= 0 && root < group.size()) << root << " of " << group.size();
  return InMailboxes(bytes.size(), [&](size_t at, size_t count) -> Status {
    TEMPER_RETURN_IF_ERROR(
        inline_.Publish(Meeting::kBroadcastBytes, bytes.size() * kMaxHostRanks + static_cast<size_t>(root)));
    if (group.index == root && count > 0) std::memcpy(inline_.own().mailbox, bytes.data() + at, count);
    TEMPER_RETURN_IF_ERROR(inline_.Arrive(group));
    if (group.index != root && count > 0) {
      std::memcpy(bytes.data() + at, inline_.of(group, root).mailbox, count);
    }
    inline_.Leave(group);
    return OkStatus();
  });
}

}  // namespace temper
