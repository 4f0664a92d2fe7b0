// Program: what the compiler makes and the runtime executes. Everything is decided: which kernels run, in which order,
// at which addresses. It needs no Graph to run, prints, and reads back to a Program that gives the same bits.
//
// Memory is one arena per tier: device, and, where not everything fits there, host and disk. At its bottom lie the
// persistent buffers (weights, gradients, optimizer states, inputs, caches). Above them lie the temporaries of a step
// and the scratch of its kernels, which lives for one instruction each, at offsets found by interval packing. Programs
// compiled together (train, eval) share arenas and persistent buffers; their temporaries overlap, because they never
// run at the same moment. TierOf gives the tier of an address.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"
#include "graph/rule.h"
#include "tensor/sharding.h"

namespace temper {

// Every address handed to a kernel is a multiple of this: a cache line, and the widest vector.
inline constexpr int64_t kAlignment = 64;

// Bounds on the content of a Program, far below overflow of summed sizes.
inline constexpr int64_t kMaxArenaBytes = int64_t{1} << 50;
inline constexpr int kMaxThreads = 1024;

// The tiers share one address space, in which each has a range of its own.
constexpr Bytes BaseOf(Tier tier) {
  return {static_cast<int64_t>(tier) << 52};
}
constexpr Tier TierOf(Bytes address) {
  return static_cast<Tier>(address.v >> 52);
}

// A persistent, named region of an arena; a transient one, among the temporaries.
struct Buffer {
  std::string name;  // of its Graph source: "model.norm.weight", "grad:...", "token"
  TensorType type;
  Role role = Role::kInput;
  bool trainable = false;
  Bytes offset;  // an address, as all offsets here
  Tier tier() const { return TierOf(offset); }
  std::optional<Shard> shard;  // of weights and states on a mesh: which part this is, of what
  // A gradient in a step of one micro-batch: it exists from its first write to the end of the step. Before, other
  // temporaries use its bytes.
  bool transient = false;
};

// A weight that the run only reads.
inline bool IsFrozen(const Buffer& b) {
  return b.role == Role::kWeight && !b.trainable;
}

// One kernel call on the operands of its segment.
struct Instruction {
  Op op;
  std::vector<int> inputs, outputs;  // indices of Segment::operands
  Attributes attributes;
};

// Straight-line code shared by all blocks of the same structure. Operands are formal: a Binding gives their addresses.
struct Segment {
  std::string name;  // "forward.block", "backward.after", ...: phase and first block that uses it
  Phase phase = Phase::kForward;
  std::vector<TensorType> operands;
  std::vector<Instruction> instructions;
};

// The actual operands of one use of a segment.
struct Binding {
  int segment = 0;
  int block = kBlockBefore;
  std::vector<Bytes> offsets;        // one per operand; its tier is the same in all bindings of the segment
  std::vector<uint64_t> rng_hashes;  // one per instruction; 0 if it draws nothing
  std::vector<Bytes> scratch;        // one per instruction: the address of its scratch; 0 if it takes none
};

// One entry of the schedule.
struct Call {
  enum class Kind : uint8_t {
    kRun,           // execute `binding`
    kLoadInputs,    // the host's arrays of micro-batch `micro_batch` are copied into the input buffers
    kStoreOutputs,  // the output buffers are copied to the host's arrays of that micro-batch
    kBeforeUpdate,  // weights and states change from here on: readers of these (a checkpoint) must be done
  };
  Kind kind = Kind::kRun;
  int binding = -1;
  int micro_batch = 0;
};

// Bytes alive at one instruction, by purpose.
struct MemoryByClass {
  Bytes weights, adapters, gradients, optimizer, activations, workspace, inputs_outputs, caches;  // workspace: scratch
  Bytes in_flight;  // what a pipeline keeps of micro-batches between their forward and their backward
  Bytes staged;     // copies of values that live in another tier
  bool operator==(const MemoryByClass&) const = default;
  Bytes total() const {
    return weights + adapters + gradients + optimizer + activations + workspace + inputs_outputs + caches + in_flight +
           staged;
  }
};

// What a Program keeps in the host's memory or on the disk, beside the device's.
struct FarMemory {
  Bytes bytes;
  MemoryByClass peak;  // at the moment of the highest sum

  bool operator==(const FarMemory&) const = default;
};

struct Program {
  std::string name;   // "train", "eval", "decode.1"
  int threads = 1;    // reductions are split for this many: part of what the bits depend on
  Bytes arena_bytes;  // of the device
  std::vector<Buffer> buffers;
  std::vector<Segment> segments;
  std::vector<Binding> bindings;
  std::vector<Call> schedule;
  MemoryByClass peak;            // at the instruction with the highest sum; packing gaps are not in it
  std::string peak_instruction;  // "backward block 3: linear_dw"
  FarMemory host, disk;

  Bytes bytes_in(Tier tier) const {
    return tier == Tier::kDevice ? arena_bytes : tier == Tier::kHost ? host.bytes : disk.bytes;
  }

  // Index of the buffer of that name, or -1. O(number of buffers).
  int FindBuffer(std::string_view name) const;
};

// A kernel's scratch while it runs: its op's workspace rule, for the Program's threads.
Bytes ScratchOf(const Program& program, const Segment& segment, const Instruction& instruction);

// Sums over the schedule.
Cost CostOfStep(const Program& program);

// What one run of the schedule moves between two tiers.
struct LinkTraffic {
  Tier from, to;
  Bytes bytes;
};
// The pairs of tiers that anything moves between.
std::vector<LinkTraffic> TrafficOfStep(const Program& program);

// Rejects a Program that could touch foreign memory or mix up operands: addresses outside the arena
// or misaligned; buffers that overlap persistent ones; an operand across the edge of one of these;
// an output that overlaps another operand of its instruction; scratch that overlaps a buffer or an
// operand of its instruction or is in another tier; operands that do not fit their op's rule or are
// in a tier that it cannot touch; segments, bindings or buffers that do not exist.
Status Verify(const Program& program);

// Text form; ReadProgram(PrintProgram(p)) prints the same text again.
std::string PrintProgram(const Program& program);
Result<Program> ReadProgram(std::string_view text);

// XXH64 of the text: ranks compare it before the first step, a checkpoint records it.
uint64_t ProgramHash(const Program& program);

}  // namespace temper
