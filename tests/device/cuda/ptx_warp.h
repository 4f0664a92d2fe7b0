// 32 threads that run together where they can: registers side by side, and the position of each. Lanes at other
// positions run one group after the other, the one that is behind first, so that they meet again where paths join.
#pragma once

#include <climits>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "ptx_program.h"

namespace temper::ptx {

class Block;

// Calls f(lane) for each lane of `mask`.
template <class F>
inline void ForLanes(Mask mask, const F& f) {
  if (mask == kAllLanes) {
    for (int lane = 0; lane < kLanes; ++lane) f(lane);
    return;
  }
  for (; mask != 0; mask &= mask - 1) f(__builtin_ctz(mask));
}

class Warp {
 public:
  Warp(Block& block, int index, size_t register_bytes, size_t local_bytes);

  // Starts at the kernel's first instruction, with all threads that the block has in this warp.
  void Begin(int32_t begin, int x, int y, int z);
  // Runs until it waits for the block or all of its threads have ended.
  void Run();
  enum class State : uint8_t { kReady, kWaits, kDone };
  State state() const { return state_; }
  void Release() { state_ = State::kReady; }
  int index() const { return index_; }
  int thread(int lane) const { return index_ * kLanes + lane; }
  Mask threads() const { return threads_; }  // of the block's; the last warp may have fewer than 32
  Block& block() { return block_; }
  // The instruction where it waits (kWaits), or the last.
  const Instruction& instruction() const { return *instruction_; }

  // Lanes of operands; any instruction may read the same register as another type.
  template <class T>
  struct Alias {
    typedef T type __attribute__((may_alias));
  };
  template <class T>
  const typename Alias<T>::type* In(const Operand& o) const {
    return reinterpret_cast<const typename Alias<T>::type*>(o.constant != nullptr ? o.constant : registers_ + o.at);
  }
  template <class T>
  typename Alias<T>::type* Out(const Operand& o) {
    return reinterpret_cast<typename Alias<T>::type*>(registers_ + o.at);
  }
  Mask Predicate(const Operand& o) const { return *In<Mask>(o); }
  void SetPredicate(const Operand& o, Mask value, Mask mask) {
    if (o.at < 0) return;
    Mask& predicate = reinterpret_cast<Mask&>(registers_[o.at]);
    predicate = (predicate & ~mask) | (value & mask);
  }
  std::byte* Local(int lane) { return local_.data() + static_cast<size_t>(lane) * local_bytes_; }
  int64_t local_bytes() const { return static_cast<int64_t>(local_bytes_); }
  void Fail(int lane, const std::string& what);

  Mask carry = 0;  // the condition code of each thread

  // Copies into shared memory that were issued and have not arrived.
  struct Copy {
    int lane;
    int64_t to;
    uint64_t from;
    int bytes, read;  // written bytes, and how many of them are read; the rest becomes zeros
    uint32_t group;
  };
  std::vector<Copy> copies;
  uint32_t copy_groups[kLanes] = {};  // closed by each lane

  // Products of its warpgroup that were issued and are not done: this warp's 16 rows.
  struct Product {
    const Instruction* instruction;
    uint64_t left, right;     // descriptors
    std::vector<uint32_t> a;  // left operands in registers: 4 words of each lane
    bool add;
    uint32_t group;
    int ordinal;  // of the warpgroup's, in this block
  };
  std::vector<Product> products;
  uint32_t product_groups = 0;
  int products_begun = 0;
  // Per register's begin / 64: when it was last written (in this warp's instructions), and in how many unfinished
  // products it is a sum or a left operand.
  std::vector<uint64_t> written_at;
  std::vector<uint8_t> summing, reading;
  uint64_t fenced_at = 0, time = 0;

 private:
  struct Group {
    int32_t pc;
    Mask mask;
    bool waits;
    std::vector<int32_t> returns;
  };

  template <bool kWatched>
  void Straight(Group& group, int32_t end);
  // Takes `mask` out of groups_[g], to continue after its instruction; the rest stays.
  void PassBy(size_t g, Mask mask);
  void Meet();
  void TakeResults(const Instruction& call, Mask mask);
  bool Watch(const Instruction& instruction);
  void NoteWrites(const Instruction& instruction);

  Block& block_;
  const int index_;
  std::unique_ptr<std::byte[]> storage_;
  std::byte* registers_;
  size_t local_bytes_;
  std::vector<std::byte> local_;
  Mask threads_ = 0;
  std::vector<Group> groups_;
  State state_ = State::kReady;
  const Instruction* instruction_ = nullptr;
};

}  // namespace temper::ptx
