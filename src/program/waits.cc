#include "program/waits.h"

#include <algorithm>

#include "graph/ops/move_part.h"
#include "program/range_counts.h"

namespace temper {
namespace {

// The bytes that an instruction reads and writes, its scratch among these.
struct Footprint {
  std::vector<AddressRange> reads, writes;
};

// The instructions of a lane that have been issued: by bytes, the latest that reads and that writes them.
class Issued {
 public:
  uint32_t count() const { return count_; }

  void Add(const Footprint& footprint) {
    ++count_;
    for (const AddressRange& range : footprint.reads) reads_.Set(range, count_);
    for (const AddressRange& range : footprint.writes) writes_.Set(range, count_);
  }

  // How many must be complete before a later instruction may run.
  uint32_t NeededBy(const Footprint& later) const {
    uint32_t needed = 0;
    for (const AddressRange& range : later.reads) needed = std::max(needed, writes_.LatestIn(range));
    for (const AddressRange& range : later.writes) {
      needed = std::max({needed, writes_.LatestIn(range), reads_.LatestIn(range)});
    }
    return needed;
  }

 private:
  uint32_t count_ = 0;
  RangeCounts reads_, writes_;
};

// Of instruction `i` of the segment.
Footprint FootprintOf(const Program& program, const Segment& segment, size_t i, const Binding& binding) {
  const Instruction& instruction = segment.instructions[i];
  Footprint f;
  if (IsMove(instruction.op)) {
    const auto from = static_cast<size_t>(instruction.inputs[0]), to = static_cast<size_t>(instruction.outputs[0]);
    const MovedBytes moved =
        MovedBytesOf(segment.operands[from], instruction.inputs.size(), segment.operands[to], instruction.attributes);
    if (moved.size == Bytes{0}) return f;
    const Bytes read = binding.offsets[from] + moved.from, written = binding.offsets[to] + moved.to;
    f.reads.push_back({read, read + moved.size});
    f.writes.push_back({written, written + moved.size});
    return f;
  }
  const auto add = [&](const std::vector<int>& operands, std::vector<AddressRange>* ranges) {
    for (const int operand : operands) {
      const auto k = static_cast<size_t>(operand);
      const Bytes size = segment.operands[k].bytes();
      if (size > Bytes{0}) ranges->push_back({binding.offsets[k], binding.offsets[k] + size});
    }
  };
  add(instruction.inputs, &f.reads);
  add(instruction.outputs, &f.writes);
  const Bytes scratch = ScratchOf(program, segment, instruction);
  if (scratch > Bytes{0}) f.writes.push_back({binding.scratch[i], binding.scratch[i] + scratch});
  return f;
}

}  // namespace

size_t LaneOf(const Instruction& instruction, const Binding& binding) {
  if (instruction.op == Op::kSend) return kSendLane;
  if (instruction.op == Op::kRecv) return kReceiveLane;
  if (!IsMove(instruction.op)) return instruction.attributes.Flag("soon") ? kSoonLane : kCollectiveLane;
  const bool fetches = instruction.op == Op::kFetch;
  const int far = fetches ? instruction.inputs[0] : instruction.outputs[0];
  const bool disk = TierOf(binding.offsets[static_cast<size_t>(far)]) == Tier::kDisk;
  return kFirstMoveLane + (fetches ? 0u : 1u) + (disk ? 2u : 0u);
}

std::vector<LaneCounts> FindWaits(const Program& program) {
  std::vector<LaneCounts> waits;
  std::array<Issued, kBackgroundLanes> issued;
  LaneCounts awaited = {};  // of those, known to be complete
  for (const Call& call : program.schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    for (size_t i = 0; i < segment.instructions.size(); ++i) {
      const Instruction& instruction = segment.instructions[i];
      LaneCounts& of_this = waits.emplace_back();
      const bool background = instruction.attributes.Flag("background");
      const size_t own = LaneOf(instruction, binding);
      bool anything = background;
      for (size_t lane = 0; lane < kBackgroundLanes; ++lane) anything |= awaited[lane] < issued[lane].count();
      if (!anything) {
        of_this = awaited;
        continue;
      }
      const Footprint footprint = FootprintOf(program, segment, i, binding);
      for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
        if (background && lane == own && !IsDiskLane(lane)) continue;
        if (awaited[lane] < issued[lane].count()) {
          awaited[lane] = std::max(awaited[lane], issued[lane].NeededBy(footprint));
        }
        of_this[lane] = awaited[lane];
      }
      if (background) issued[own].Add(footprint);
    }
  }
  return waits;
}

}  // namespace temper
