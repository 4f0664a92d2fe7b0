// Kernels as the machine runs them: decoded instructions with the places of their operands. Immutable once decoded.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "ptx_parser.h"
#include "ptx_text.h"

namespace temper::ptx {

class Warp;
struct Instruction;

inline constexpr int kLanes = 32;
using Mask = uint32_t;  // bit l: lane l
inline constexpr Mask kAllLanes = ~Mask{0};

// The effect of an instruction on the lanes of `mask`, at least one.
using Handler = void (*)(Warp& warp, const Instruction& instruction, Mask mask);

// 32 lanes of a register, or of a constant that all share; for a predicate its Mask. Neither: nothing (`_`, omitted).
struct Operand {
  int32_t at = -1;                      // in the warp's registers
  uint8_t bytes = 0;                    // per lane; 0: a predicate
  const std::byte* constant = nullptr;  // instead
  bool exists() const { return at >= 0 || constant != nullptr; }
};

// Where the lanes go next.
enum class Flow : uint8_t {
  kNext,
  kTogether,  // as kNext, when the lanes named by `members` have arrived (all if omitted)
  kBranch,
  kCall,
  kReturn,  // from a function, or the end of the thread
  kExit,
  kBarrier,  // for the block's threads, or a's number of barrier and b's number of threads
  kArrive,   // as kBarrier, without waiting
};

struct Instruction {
  Handler run = nullptr;
  Flow flow = Flow::kNext;
  bool guard_negated = false, predicate_negated = false;
  bool asynchronous = false;  // of a warpgroup's units, which look after their registers themselves
  Space space = Space::kGeneric;
  uint8_t access_bytes = 0;  // for loads and stores: per element
  int32_t guard = -1;        // where its predicate is
  int32_t target = -1;       // kBranch, kCall: an index of Program::code
  int32_t line = 0;
  Operand d, d2, a, b, c, members, predicate;
  int64_t number = 0;             // added to an address; whatever else a handler needs
  int64_t added = 0;              // to the second address
  std::span<const Operand> many;  // of vectors, those written first
  int32_t written = 0;            // how many of them
  const TextFunction* callee = nullptr;
  std::span<const Variable> arguments, results;  // kCall: the caller's
};

// Shared memory begins here in its window: as on Hopper, whose first KiB belongs to the system. 0 is unallocated.
inline constexpr int64_t kSharedBegin = 1024;

struct Kernel {
  const TextFunction* text = nullptr;
  int32_t begin = 0;          // of Program::code
  int shared_granule = 4;     // bytes: the smallest access of the file's instructions to shared memory
  bool has_products = false;  // of warpgroups
  bool has_named_barriers = false;
};

struct Program {
  std::unique_ptr<Text> text;
  std::vector<Instruction> code;
  std::map<std::string, Kernel, std::less<>> kernels;
  std::deque<std::vector<Operand>> vectors;
  std::deque<std::vector<Variable>> call_variables;
  struct alignas(64) Constant {
    std::byte lanes[kLanes * 8];
  };
  std::deque<Constant> constants;

  // Where dynamic shared memory begins.
  int64_t DynamicShared(const TextFunction& kernel) const;
  // `bits` in every lane of `bytes` (0: a predicate).
  const std::byte* ConstantOf(uint64_t bits, int bytes);

 private:
  std::map<std::pair<uint64_t, int>, const std::byte*> known_constants_;
};

}  // namespace temper::ptx
