// placement_search: which tier every persistent value of given graphs lives in, such that they fit and the step is
// fast. The pass that then moves values to where kernels run is compile/residency/residency.h.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/memory/tier_groups.h"
#include "program/program.h"

namespace temper {

// Programs from graphs that stand for those of the uses, in their order. Several threads may call it at once.
using MakePrograms = std::function<Result<std::vector<Program>>(const std::vector<PartedGraph>&)>;

// What a step of a Program takes, by the estimate: the sum of both.
struct StepSeconds {
  Seconds stall;    // of moves, beyond what computing hides
  Seconds compute;  // all else
  Seconds total() const { return stall + compute; }
};
StepSeconds EstimateOn(const MemorySpec& memory, const Program& program);

struct FoundTiers {
  std::vector<Program> programs;
  bool all_on_device = false;
};

// Of the ways to share the device between what lives there and room for copies: all; the first that fits, the one that
// is best as a rule before all others; or those others, where that one is known and moves something.
enum class Effort : uint8_t { kAll, kOne, kOthers };

// The fastest placement found. Errors: kOutOfMemory where none fits, with the numbers; where one instruction's operands
// exceed the device, that is named. `remedies`: what a user can do then. `threads`: that the Programs run on, and as
// many look for the placement: how many look makes no difference to it.
Result<FoundTiers> SearchTiers(const MemorySpec& memory, StepUses uses, int threads, const MakePrograms& place,
                               Effort effort, const std::string& remedies);

}  // namespace temper
