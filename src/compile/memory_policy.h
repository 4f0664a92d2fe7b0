// memory_policy: which tier every persistent value of a step lives in, and what that costs. Given are limits, or tiers
// for whole classes of values; what is left open goes where the step loses the least time. The pass that then moves
// values to where kernels run is compile/residency.h.
#pragma once

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "compile/pipeline.h"
#include "compile/residency.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

enum class MemoryPlacement : uint8_t {
  kAuto,    // the device for what it holds best, farther tiers for the rest
  kDevice,  // everything on the device
  kHost,    // weights, gradients and optimizer states parked at the host, fetched for each use
};

inline constexpr Bytes kNoLimit{std::numeric_limits<int64_t>::max()};

struct MemorySpec {
  MemoryPlacement placement = MemoryPlacement::kAuto;
  Bytes device = kNoLimit, host = kNoLimit;
  bool disk = false;  // whether there is a place on a disk to write to
  // Where a class of values lives, whatever the placement says.
  std::optional<Tier> weights, gradients, optimizer, activations;
  DeviceRates rates = TypicalHost();       // of the device
  DeviceRates host_rates = TypicalHost();  // of kernels on what lives in the host's memory
  LinkRates links = {
      .host_to_device = 8e9, .device_to_host = 8e9, .disk_read = 1e9, .disk_write = 1e9, .latency = {20e-6}};

  // Nothing is asked for: everything lies on the device.
  bool IsOpen() const {
    return placement != MemoryPlacement::kHost && device == kNoLimit && !weights && !gradients && !optimizer &&
           !activations;
  }
};

// The graphs of a step, before UpdateInPlace. `rest`: of micro-batches after the first; empty where there are none.
struct StepGraphs {
  PipelinedGraph first, rest, eval;  // without parts where there is no pipeline
  Graph update;
  int micro_batches = 1;
  // Of a stage of a pipeline.
  struct Pipeline {
    StageCalls train, eval;
    Graph gathers;  // of weights that are gathered once per step (compile/gather_once.h); empty where they are not
  };
  std::optional<Pipeline> pipeline;
};

// What was chosen, for people: "weights 1.1 GiB on the device, 3.0 GiB on the host; ...".
struct ChosenMemory {
  std::string text;  // "": everything on the device
  Seconds stall;     // of a step, by the estimate: what moves take beyond what computing hides
  Seconds compute;   // of a step

  std::string ToString() const;
};

// Places the step within the limits. Errors: kOutOfMemory where one instruction's operands exceed the device, which
// names it, or where `placement` allows nothing that fits, with the numbers.
Result<std::vector<Program>> PlaceWithin(const MemorySpec& memory, const StepGraphs& step, int threads,
                                         ChosenMemory* chosen);

// A forward pass that is evaluated or decodes, by the same rules.
struct NamedGraph;
Result<std::vector<Program>> PlaceWithin(const MemorySpec& memory, std::span<const NamedGraph> graphs, int threads,
                                         ChosenMemory* chosen);

}  // namespace temper
