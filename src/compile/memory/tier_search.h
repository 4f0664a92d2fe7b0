// tier_search: chooses the tier of every persistent value of given graphs, such that they fit and the step is fast.
// compile/residency/residency.h then inserts the moves to where kernels run.
#pragma once

#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/memory/tier_groups.h"
#include "program/program.h"

namespace temper {

// Makes Programs from graphs that replace those of the uses, in the same order. Several threads may call it at once.
using MakePrograms = std::function<Result<std::vector<Program>>(std::vector<PipelinedGraph>)>;

// Estimated seconds of a step of a Program.
struct StepSeconds {
  Seconds stall;    // moves that computing does not hide
  Seconds compute;  // everything else
  Seconds total() const { return stall + compute; }
};
StepSeconds EstimateOn(const MemorySpec& memory, const Program& program);
inline constexpr Seconds kNoSeconds{std::numeric_limits<double>::infinity()};

struct FoundTiers {
  std::vector<Program> programs;
  bool all_on_device = false;
  StepSeconds seconds;  // of the first Program; not estimated if all is on the device
};

// Which ways to split the device between resident values and room for copies are tried: kAll: all; kOne: the first that
// fits, starting with the one that is usually best; kOthers: the others, if kOne is known and moves something.
enum class Effort : uint8_t { kAll, kOne, kOthers };

// The fastest choice of tiers found. Errors: kOutOfMemory if none fits, with the numbers; if the operands of one
// instruction exceed the device, the message names it. `remedies`: advice to the user in that case. `threads`: the
// Programs run on that many threads; the search uses as many, without influence on its result. `known`: the seconds of
// a step that is known; slower ones may be given up (kOutOfMemory).
Result<FoundTiers> SearchTiers(const MemorySpec& memory, StepUses uses, int threads, const MakePrograms& make,
                               Effort effort, const std::string& remedies, Seconds known = kNoSeconds);

}  // namespace temper
