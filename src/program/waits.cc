#include "program/waits.h"

#include <algorithm>

#include "graph/ops/move_part.h"
#include "graph/traffic_ops.h"
#include "program/range_counts.h"

namespace temper {
namespace {

// Bytes of an operand that an instruction touches, or its scratch.
struct Part {
  size_t operand;
  bool is_scratch, writes;
  Bytes from, size;
};

// What is the same in all bindings of a segment, whose operands are in the same tiers.
struct Issue {
  std::vector<Part> parts;
  bool background;
  size_t lane;
};

AddressRange RangeOf(const Part& part, size_t instruction, const Binding& binding) {
  const Bytes begin = (part.is_scratch ? binding.scratch[instruction] : binding.offsets[part.operand]) + part.from;
  return {begin, begin + part.size};
}

// The instructions of a lane that have been issued: by bytes, the latest that reads and that writes them.
class Issued {
 public:
  uint32_t count() const { return count_; }

  void Add(const Issue& issue, size_t instruction, const Binding& binding) {
    ++count_;
    for (const Part& part : issue.parts) {
      (part.writes ? writes_ : reads_).Set(RangeOf(part, instruction, binding), count_);
    }
  }

  // How many must be complete before a later instruction may run.
  uint32_t NeededBy(const Issue& later, size_t instruction, const Binding& binding) const {
    uint32_t needed = 0;
    for (const Part& part : later.parts) {
      const AddressRange range = RangeOf(part, instruction, binding);
      needed = std::max(needed, writes_.LatestIn(range));
      if (part.writes) needed = std::max(needed, reads_.LatestIn(range));
    }
    return needed;
  }

 private:
  uint32_t count_ = 0;
  RangeCounts reads_, writes_;
};

std::vector<Part> PartsOf(const Program& program, const Segment& segment, const Instruction& instruction) {
  std::vector<Part> parts;
  const auto add = [&](const Part& part) {
    if (part.size > Bytes{0}) parts.push_back(part);
  };
  if (IsMove(instruction.op)) {
    const auto from = static_cast<size_t>(instruction.inputs[0]), to = static_cast<size_t>(instruction.outputs[0]);
    const MovedBytes moved =
        MovedBytesOf(segment.operands[from], instruction.inputs.size(), segment.operands[to], instruction.attributes);
    add({.operand = from, .is_scratch = false, .writes = false, .from = moved.from, .size = moved.size});
    add({.operand = to, .is_scratch = false, .writes = true, .from = moved.to, .size = moved.size});
    if (instruction.attributes.Flag("routed")) {
      const auto expert = static_cast<size_t>(instruction.inputs[1]);
      add({.operand = expert,
           .is_scratch = false,
           .writes = false,
           .from = {},
           .size = segment.operands[expert].bytes()});
    }
    return parts;
  }
  for (const auto* list : {&instruction.inputs, &instruction.outputs}) {
    for (const int operand : *list) {
      const auto k = static_cast<size_t>(operand);
      const bool writes = list == &instruction.outputs;
      add({.operand = k, .is_scratch = false, .writes = writes, .from = {}, .size = segment.operands[k].bytes()});
    }
  }
  const Bytes scratch = ScratchOf(program, segment, instruction);
  add({.operand = 0, .is_scratch = true, .writes = true, .from = {}, .size = scratch});
  return parts;
}

}  // namespace

size_t LaneOf(const Instruction& instruction, const Binding& binding) {
  if (instruction.op == TrafficOp::kSend) return kSendLane;
  if (instruction.op == TrafficOp::kRecv) return kReceiveLane;
  if (!IsMove(instruction.op)) return instruction.attributes.Flag("soon") ? kSoonLane : kCollectiveLane;
  const int far = instruction.op == TrafficOp::kFetch ? instruction.inputs[0] : instruction.outputs[0];
  return LaneOfMove(instruction.op, TierOf(binding.offsets[static_cast<size_t>(far)]));
}

size_t LaneOfMove(Op op, Tier far) {
  return kFirstMoveLane + (op == TrafficOp::kFetch ? 0u : 1u) + (far == Tier::kDisk ? 2u : 0u);
}

std::vector<LaneCounts> FindWaits(const Program& program) {
  return FindWaits(program, program.schedule);
}

std::vector<LaneCounts> FindWaits(const Program& program, std::span<const Call> schedule) {
  std::vector<LaneCounts> waits;
  std::vector<std::vector<Issue>> issues(program.segments.size());  // per instruction
  std::array<Issued, kBackgroundLanes> issued;
  LaneCounts awaited = {};  // of those, known to be complete
  for (const Call& call : schedule) {
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const Segment& segment = program.segments[static_cast<size_t>(binding.segment)];
    std::vector<Issue>& of_segment = issues[static_cast<size_t>(binding.segment)];
    if (of_segment.empty()) {
      for (const Instruction& instruction : segment.instructions) {
        of_segment.push_back({.parts = PartsOf(program, segment, instruction),
                              .background = instruction.attributes.Flag("background"),
                              .lane = LaneOf(instruction, binding)});
      }
    }
    for (size_t i = 0; i < of_segment.size(); ++i) {
      const Issue& issue = of_segment[i];
      LaneCounts& of_this = waits.emplace_back();
      for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
        if (issue.background && lane == issue.lane && !IsDiskLane(lane)) continue;
        if (awaited[lane] < issued[lane].count()) {
          awaited[lane] = std::max(awaited[lane], issued[lane].NeededBy(issue, i, binding));
        }
        of_this[lane] = awaited[lane];
      }
      if (issue.background) issued[issue.lane].Add(issue, i, binding);
    }
  }
  return waits;
}

}  // namespace temper
