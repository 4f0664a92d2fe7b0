#include "ptx_shared_memory.h"

#include <algorithm>

#include "ptx_program.h"

namespace temper::ptx {

void SharedMemory::Resize(int64_t begin, int64_t bytes, int threads, int granule, bool find_races) {
  shift_ = granule == 1 ? 0 : granule == 2 ? 1 : 2;
  find_races_ = find_races;
  bytes_.assign(static_cast<size_t>(bytes), std::byte{0xFF});
  granules_.assign((bytes_.size() >> shift_) + 1, Granule());
  fences_.assign(static_cast<size_t>(threads), Fences());
  now_ = first_ = 1;
  begin_ = begin, end_ = begin + bytes;
  error_.clear();
}

void SharedMemory::BeginBlock() {
  if (now_ > 0x80000000u) {
    std::fill(granules_.begin(), granules_.end(), Granule());
    std::fill(fences_.begin(), fences_.end(), Fences());
    now_ = 0;
  }
  first_ = ++now_;
}

bool SharedMemory::Fail(const std::string& what, int64_t at) {
  error_ = what + ", at byte " + std::to_string(at - begin_) + " of " + std::to_string(bytes_.size()) +
           " bytes of shared memory";
  return false;
}

bool SharedMemory::DoesNotReach(int64_t at, int64_t bytes) {
  if (at < begin_ || at + bytes > end_) {
    return Fail("an access to " + std::to_string(bytes) + " bytes beyond what the block has", at);
  }
  return Fail("an access to " + std::to_string(bytes) + " bytes that is not aligned to them", at);
}

bool SharedMemory::MayNotRead(const Granule& granule, int64_t at) {
  if (granule.copying >= first_) return Fail("a read of what a copy is still under way to", at);
  if (granule.written < first_) return Fail("a read of what was never written", at);
  return Fail("a read of what thread " + std::to_string(granule.writer) + " wrote with no barrier between", at);
}

bool SharedMemory::MayNotWrite(const Granule& granule, int64_t at, int warp) {
  if (granule.copying >= first_) return Fail("a write to where a copy is still under way to", at);
  if (granule.written == now_ && granule.writer / kLanes != warp) {
    return Fail("a write over what thread " + std::to_string(granule.writer) + " wrote with no barrier between", at);
  }
  const std::string who = granule.reader == kSeveral ? "several warps" : "thread " + std::to_string(granule.reader);
  return Fail("a write over what " + who + " read with no barrier between", at);
}

std::byte* SharedMemory::Read(int64_t at, int64_t bytes, int thread) {
  if (!Reaches(at, bytes)) return nullptr;
  const int64_t end = (at - begin_ + bytes - 1) >> shift_;
  for (int64_t i = (at - begin_) >> shift_; i <= end; ++i) {
    if (!MayRead(granules_[static_cast<size_t>(i)], at, thread)) return nullptr;
  }
  return bytes_.data() + (at - begin_);
}

int SharedMemory::ReadByWarp(const uint64_t* from, uint32_t lanes, int64_t bytes, int thread, std::byte** at) {
  int before = -1;
  for (; lanes != 0; lanes &= lanes - 1) {
    const int lane = __builtin_ctz(lanes);
    // Lanes often read the same address.
    if (before >= 0 && from[lane] == from[before]) {
      at[lane] = at[before];
      continue;
    }
    const auto begin = static_cast<int64_t>(from[lane]);
    if (!Reaches(begin, bytes)) return lane;
    const int64_t end = (begin - begin_ + bytes - 1) >> shift_;
    for (int64_t i = (begin - begin_) >> shift_; i <= end; ++i) {
      if (!MayRead(granules_[static_cast<size_t>(i)], begin, thread + lane)) return lane;
    }
    at[lane] = bytes_.data() + (begin - begin_);
    before = lane;
  }
  return -1;
}

std::byte* SharedMemory::Write(int64_t at, int64_t bytes, int thread) {
  if (!Reaches(at, bytes)) return nullptr;
  const int64_t end = (at - begin_ + bytes - 1) >> shift_;
  for (int64_t i = (at - begin_) >> shift_; i <= end; ++i) {
    Granule& granule = granules_[static_cast<size_t>(i)];
    if (!MayWrite(granule, at, thread)) return nullptr;
    granule.written = now_, granule.writer = static_cast<uint16_t>(thread),
    granule.fences = fences_[static_cast<size_t>(thread)].count;
  }
  return bytes_.data() + (at - begin_);
}

bool SharedMemory::BeginCopy(int64_t at, int64_t bytes, int thread) {
  if (!Reaches(at, bytes)) return false;
  const int64_t end = (at - begin_ + bytes - 1) >> shift_;
  for (int64_t i = (at - begin_) >> shift_; i <= end; ++i) {
    Granule& granule = granules_[static_cast<size_t>(i)];
    if (!MayWrite(granule, at, thread)) return false;
    granule.copying = now_;
  }
  return true;
}

void SharedMemory::EndCopy(int64_t at, int64_t bytes) {
  const int64_t end = (at - begin_ + bytes - 1) >> shift_;
  for (int64_t i = (at - begin_) >> shift_; i <= end; ++i) granules_[static_cast<size_t>(i)].copying = 0;
}

void SharedMemory::Fence(int thread) {
  Fences& fences = fences_[static_cast<size_t>(thread)];
  ++fences.count, fences.last = now_;
}

const std::byte* SharedMemory::ReadByUnits(int64_t at, int64_t bytes, int thread) {
  if (!Reaches(at, bytes)) return nullptr;
  const int64_t end = (at - begin_ + bytes - 1) >> shift_;
  for (int64_t i = (at - begin_) >> shift_; i <= end; ++i) {
    Granule& granule = granules_[static_cast<size_t>(i)];
    if (!MayRead(granule, at, thread)) return nullptr;
    if (fences_[granule.writer].count == granule.fences &&
        fences_[static_cast<size_t>(thread)].last <= granule.written) {
      Fail("a product of what thread " + std::to_string(granule.writer) + " wrote without fence.proxy.async after it",
           at);
      return nullptr;
    }
  }
  return bytes_.data() + (at - begin_);
}

}  // namespace temper::ptx
