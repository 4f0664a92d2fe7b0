// The shared memory of a block, with the state of each byte: which thread wrote it, which read it and when. An access
// that a GPU would answer with rubbish is refused: beyond the end, misaligned, never written, while a copy to it is
// under way, or together with another warp's with no barrier between.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

namespace temper::ptx {

class SharedMemory {
 public:
  // For a new launch of blocks of `threads`, from address `begin`
  // on. `granule`: the smallest access in bytes (1, 2 or 4).
  void Resize(int64_t begin, int64_t bytes, int threads, int granule, bool find_races);
  // Marks all of it unwritten.
  void BeginBlock();
  // A barrier for all threads of the block: later accesses come after all earlier ones.
  void PassBarrier() { ++now_; }

  // The host's address of `bytes` bytes from address `at` on; nullptr if they may not be touched: error() says why.
  // `thread`: of the block.
  std::byte* Read(int64_t at, int64_t bytes, int thread);
  std::byte* Write(int64_t at, int64_t bytes, int thread);
  // Read for those of a warp's lanes that are in `lanes`, each from its own address; `thread`: the first lane's.
  // Returns the lane that may not, or -1.
  int ReadByWarp(const uint64_t* from, uint32_t lanes, int64_t bytes, int thread, std::byte** at);
  // A copy to there begins, and ends (a write follows).
  bool BeginCopy(int64_t at, int64_t bytes, int thread);
  void EndCopy(int64_t at, int64_t bytes);
  // Thread `thread` orders its own writes, and those of others that it knows by barriers, before the units' reads.
  void Fence(int thread);
  // A read by a warpgroup's matrix units for `thread`: it must be preceded by a fence of the writer, or by one of
  // `thread` after a barrier.
  const std::byte* ReadByUnits(int64_t at, int64_t bytes, int thread);

  const std::string& error() const { return error_; }

 private:
  struct Granule {
    uint32_t written = 0, read = 0;   // when: `now_` of then; valid from first_ on
    uint32_t fences = 0;              // the writer's, when it wrote
    uint16_t writer = 0, reader = 0;  // threads; reader kSeveral: of several warps
    uint32_t copying = 0;             // since when, valid as above
  };
  static constexpr uint16_t kSeveral = 0xFFFF;

  // The rest runs for each lane of each access: it is short if all is well.
  bool Reaches(int64_t at, int64_t bytes) {
    if (at >= begin_ && at + bytes <= end_ && (at & (bytes - 1)) == 0) return true;
    return DoesNotReach(at, bytes);
  }
  bool MayRead(Granule& granule, int64_t at, int thread) {
    const int warp = thread / 32;
    const bool is_there = granule.copying < first_ && granule.written >= first_;
    if (!is_there || (granule.written == now_ && granule.writer / 32 != warp && find_races_)) {
      return MayNotRead(granule, at);
    }
    if (granule.read != now_) {
      granule.read = now_, granule.reader = static_cast<uint16_t>(thread);
    } else if (granule.reader / 32 != warp) {
      granule.reader = kSeveral;
    }
    return true;
  }
  bool MayWrite(const Granule& granule, int64_t at, int thread) {
    const int warp = thread / 32;
    const bool races = (granule.written == now_ && granule.writer / 32 != warp) ||
                       (granule.read == now_ && granule.reader / 32 != warp);
    if (granule.copying < first_ && !(races && find_races_)) return true;
    return MayNotWrite(granule, at, warp);
  }
  // The errors.
  bool DoesNotReach(int64_t at, int64_t bytes);
  bool MayNotRead(const Granule& granule, int64_t at);
  bool MayNotWrite(const Granule& granule, int64_t at, int warp);
  bool Fail(const std::string& what, int64_t at);

  std::vector<std::byte> bytes_;
  std::vector<Granule> granules_;
  struct Fences {
    uint32_t count = 0, last = 0;  // when: as above
  };
  std::vector<Fences> fences_;  // of threads
  int64_t begin_ = 0, end_ = 0;
  int shift_ = 2;  // log2 of a granule's bytes
  bool find_races_ = true;
  uint32_t now_ = 1, first_ = 1;
  std::string error_;
};

}  // namespace temper::ptx
