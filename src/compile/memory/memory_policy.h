// memory_policy: makes a step fit into memory. The user gives limits, or tiers for whole classes of values. The policy
// chooses the nodes to recompute, the number of rows per chunk of the loss, and the tier of every persistent value. No
// choice changes a bit of the results; it takes the fastest by estimate (compile/estimate/step_estimate.h).
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/memory/memory_spec.h"
#include "compile/memory/recompute.h"
#include "compile/memory/step_graphs.h"
#include "graph/ops/loss_scratch.h"
#include "program/program.h"

namespace temper {

// The search ends where a step could gain less than this part of its time: forecasts are not that exact.
inline constexpr double kWorthwhile = 0.01;

// Which operands of products are packed ahead of them (compile/memory/pack_weights.h, pack_operands.h), by the memory
// that takes.
enum class PackedOperands : uint8_t {
  kNone,
  kInMicroBatch,  // what several products of a micro-batch read, while they need it
  kAll,           // also frozen weights, once per run, and trained ones, once per step
};

// One way to compile a step.
struct StepChoice {
  Recompute recompute = Recompute::kNone;
  int recompute_blocks = kAllBlocks;       // only the first `recompute_blocks`
  int64_t loss_chunk = kDefaultLossChunk;  // most rows that linear_cross_entropy processes at a time
  bool casts = false;                      // trained matrices (CastWeights)
  bool merges = false;                     // the update is part of the last micro-batch's backward (MergeUpdate)
  PackedOperands packing = PackedOperands::kNone;

  std::string ToString() const;  // "block in the first 6 blocks, bf16 weights cast, loss in chunks of 128 rows"
  bool operator==(const StepChoice&) const = default;
};
using StepMaker = std::function<Result<StepGraphs>(const StepChoice&)>;

// The choices for a model of `blocks` blocks under a limit, ordered from fast to small. `recompute`: the user's
// setting; kAuto allows all modes. `tokens`: of a micro-batch. `matrices`: kAuto allows both.
std::vector<StepChoice> ChoicesWithin(Recompute recompute, int recompute_blocks, int blocks, int64_t tokens,
                                      TrainedMatrices matrices);

// The result of one choice.
struct StepOption {
  StepChoice choice;
  bool fits = false;
  // It was compiled, or its activations alone were too large (HeldActivations). False: its kernels alone take so long
  // that less than kWorthwhile could be gained.
  bool tried = false;
  Seconds step;              // estimated; compute time alone, or 0, if it does not fit or was not tried
  Seconds computing;         // compute time alone; 0 for the first choice
  Bytes device, host, disk;  // reserved, if it fits
  Bytes moved;               // per step
};

// The choice, for display.
struct ChosenMemory {
  StepChoice choice;
  std::string text;  // "weights 1.1 GiB on the device, 3.0 GiB on the host; ..."; "": everything on the device
  Seconds stall;     // per step, estimated: time of moves that computing does not hide
  Seconds compute;   // per step
  std::vector<StepOption> options;  // all that were considered, the chosen one first; empty if there was no choice
  int64_t work = 0;                 // SearchWork::nodes of the search, if there was a choice

  std::string ToString() const;
};
// A table of the options considered, the chosen one first; empty if there was no choice.
std::vector<std::string> OptionLines(std::span<const StepOption> options);

// Compiles the step by one of `choices` and finds tiers for its values within the limits. Smaller chunks of the loss
// are tried if nothing else fits, and for the fastest choice if it waits for moves (MemorySpec::loss_chunks_keep_bits).
// Choices that merge the update are tried without, too, if nothing fits or values move. REQUIRES: a choice that packs
// is the only one, and nothing leaves the device (kDevice, or no limits).
// `make_all`: makes the step of the choice with Programs of shorter rows, too: the search is over the others, after
// which these place their values alike; nullptr: `make` makes all there are.
// Errors: kOutOfMemory if the operands of one instruction, which the message names, exceed the device, or if nothing
// that the policy allows fits, with the numbers.
Result<std::vector<Program>> FitWithin(const MemorySpec& memory, std::span<const StepChoice> choices,
                                       const StepMaker& make, int threads, ChosenMemory* chosen,
                                       const StepMaker& make_all = nullptr);

// Programs of which none trains, by the same rules: `step` as it is.
Result<std::vector<Program>> FitForward(const MemorySpec& memory, const StepGraphs& step, int threads,
                                        ChosenMemory* chosen);

}  // namespace temper
