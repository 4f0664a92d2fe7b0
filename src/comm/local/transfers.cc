#include "comm/local/transfers.h"

#include <fmt/core.h>

#include <cstring>

namespace temper {
void Transfers::Ring(int peer, Lane lane) {
  Sleeper& sleeper = control_.sleeper(peer, lane);
  if (sleeper.sleeping.load() != 0) RingDoorbell(sleeper);
}

// Counters are stored sequentially consistent, as the sleeper's flag and its second look are: one of the two sees the
// other.
Status Transfers::Send(int peer, const std::byte* bytes, uint64_t fingerprint) {
  TEMPER_RETURN_IF_ERROR(sends_.Check());
  TransferSlot& slot = control_.transfer(self_, peer);
  const uint32_t number = slot.posted.load(std::memory_order_relaxed) + 1;
  slot.address = arenas_.AddressOf(bytes);
  slot.fingerprint = fingerprint;
  slot.posted.store(number);
  Ring(peer, Lane::kReceives);
  return sends_.Until(peer, [&] { return slot.taken.load(std::memory_order_acquire) == number; });
}

Status Transfers::Receive(int peer, std::byte* bytes, Bytes size, uint64_t fingerprint) {
  TEMPER_RETURN_IF_ERROR(receives_.Check());
  TransferSlot& slot = control_.transfer(peer, self_);
  const uint32_t number = slot.taken.load(std::memory_order_relaxed) + 1;
  TEMPER_RETURN_IF_ERROR(receives_.Until(peer, [&] { return slot.posted.load(std::memory_order_acquire) == number; }));
  if (slot.fingerprint != fingerprint) {
    return receives_.Stop(
        InvalidArgument(fmt::format("{} sends another value than {} is waiting for: ranks must run "
                                    "programs of one pipeline",
                                    control_.NameOf(peer), control_.NameOf(self_))));
  }
  if (size.v > 0) {
    const auto theirs = arenas_.At(peer, slot.address, size);
    if (!theirs.ok()) return receives_.Stop(theirs.status());
    std::memcpy(bytes, *theirs, static_cast<size_t>(size.v));
  }
  slot.taken.store(number);
  Ring(peer, Lane::kSends);
  return OkStatus();
}

}  // namespace temper
