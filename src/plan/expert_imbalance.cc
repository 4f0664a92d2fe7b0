#include "plan/expert_imbalance.h"

#include <algorithm>

#include "graph/named_ops.h"

namespace temper {

double ExpertImbalance::worst() const {
  return static_cast<double>(experts * std::min(active, own)) / static_cast<double>(own * active);
}

std::optional<ExpertImbalance> FindImbalance(const Program& train) {
  for (const Segment& segment : train.segments) {
    for (const Instruction& instruction : segment.instructions) {
      if (instruction.op != Op::kGroupedLinear) continue;
      const auto type = [&](size_t i) { return segment.operands[static_cast<size_t>(instruction.inputs[i])]; };
      const int64_t own = type(1).shape[0], active = instruction.attributes.Int("active");
      return ExpertImbalance{.experts = instruction.attributes.IntOr("whole", own),
                             .own = own,
                             .active = active,
                             .tokens = type(0).shape[0] / active};
    }
  }
  return std::nullopt;
}

}  // namespace temper
