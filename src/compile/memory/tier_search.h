// tier_search: chooses the tier of every persistent value of given graphs, such that they fit and the step is fast.
// compile/residency/residency.h then inserts the moves to where kernels run.
#pragma once

#include <functional>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "compile/layout/layout.h"
#include "compile/memory/memory_spec.h"
#include "compile/memory/tier_groups.h"
#include "compile/residency/residency_spec.h"
#include "program/program.h"

namespace temper {

// A graph with its moves, after UpdateInPlace.
struct MovedGraph {
  PipelinedGraph graph;
  std::optional<Layout> layout = {};  // if it is laid out apart from others (StepUses::apart)
};

// Makes Programs from graphs that replace those of the uses, in the same order. Several threads may call it at once.
using MakePrograms = std::function<Result<std::vector<Program>>(const std::vector<MovedGraph>&)>;

// Estimated seconds of a step of a Program.
struct StepSeconds {
  Seconds stall;    // moves that computing does not hide
  Seconds compute;  // everything else
  Seconds total() const { return stall + compute; }
};
StepSeconds EstimateOn(const MemorySpec& memory, const Program& program);
inline constexpr Seconds kNoSeconds{std::numeric_limits<double>::infinity()};

// How values were placed, for graphs that are to be placed alike.
struct Placement {
  bool moves = false;  // false: all is on the device, and the rest has no meaning
  Homes homes;
  ResidencySpec spec;  // without its pointers
};

struct FoundTiers {
  std::vector<Program> programs;
  bool all_on_device = false;
  StepSeconds seconds;  // of the first Program; not estimated if all is on the device
  Placement placement = {};
};

// Which ways to split the device between resident values and room for copies are tried: kAll: all; kOne: the first that
// fits, starting with the one that is usually best; kOthers: the others, if kOne is known and moves something.
enum class Effort : uint8_t { kAll, kOne, kOthers };

// How much searches for tiers have done: the nodes of all graphs that they have rewritten. Programs of small models are
// far from the bound. Of large ones, of which each choice takes a good part of a second, a search beyond it takes the
// first way that fits. It counts work, not time, so that all ranks and machines find the same.
struct SearchWork {
  static constexpr int64_t kEnough = 400'000;  // one to two seconds of a core

  int64_t nodes = 0;
  // What the last placement that fitted left to copies of what residents left: the first guess for others.
  double scale = 1;
  // Whether the last search that found none had nothing more to move away from the host.
  bool short_of_host = false;
  // A model of which a search looks at few placements.
  bool large() const { return nodes > kEnough / 5; }
  bool enough() const { return nodes > kEnough; }
  bool half() const { return nodes > kEnough / 8 * 3; }  // the rest is for the best way found
  bool most() const { return nodes > kEnough / 4 * 3; }  // no other ways are tried with all tiers
};

// The fastest choice of tiers found. Errors: kOutOfMemory if none fits, with the numbers; if the operands of one
// instruction exceed the device, the message names it. `remedies`: advice to the user in that case. `threads`: the
// Programs run on that many threads; the search uses as many, without influence on its result. `known`: the seconds of
// a step that is known; slower ones may be given up (kOutOfMemory). `work`: of the searches so far; this one adds its
// own.
Result<FoundTiers> SearchTiers(const MemorySpec& memory, StepUses uses, int threads, const MakePrograms& make,
                               Effort effort, const std::string& remedies, Seconds known = kNoSeconds,
                               SearchWork* work = nullptr);

}  // namespace temper
