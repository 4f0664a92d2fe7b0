// residency: the pass that gives every value a tier and moves what kernels touch to where they run. It is to tiers what
// partition is to a mesh: model code knows nothing of it, and what it inserts are nodes like all others.
//
// A persistent value has a home, the same in all graphs compiled together. Where a kernel touches a value away from its
// home, it works on a copy: fetched before (kFetch), and, if it was changed, written back after (kEvict). A copy serves
// several touches where keeping it between them costs less than fetching it again (compile/eviction.h); the others
// are dropped after their last touch. Activations may leave the device between the forward and the backward pass.
// Fetches are issued ahead by the time they take, as far as memory allows.
//
// Between the parts of a pipeline's stage other micro-batches run: copies serve one part, and what leaves the device
// from one to another lies in slots at the host (compile/layout.h).
//
// What is moved are bytes: no placement changes a result.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "compile/device_rates.h"
#include "compile/pipeline.h"
#include "graph/graph.h"

namespace temper {

// How much longer kernels take, and moves in the background, while both run, as a part of what each takes alone: where
// what moves is copied by the cores that compute.
struct Contention {
  double slows = 0;   // kernels
  double slowed = 0;  // the move
};

// Bytes per second between neighbours, each way, with nothing beside them; latency is what a move costs beside its
// bytes.
struct LinkRates {
  double host_to_device = 0, device_to_host = 0, disk_read = 0, disk_write = 0;
  Seconds latency;
  Contention copies = {}, disk = {};  // of moves between host and device; from and to the disk

  // Of one move. The disk is reached from the device at the disk's rate: the host's memory is faster.
  Seconds SecondsOf(Tier from, Tier to, Bytes bytes) const;
  // The same beside kernels.
  Seconds SecondsBesideKernels(Tier from, Tier to, Bytes bytes) const;
};

// Homes of persistent values by name; of those that are not in it, the device.
using Homes = std::map<std::string, Tier>;

// 8 MiB of each state: long enough for a disk (disk/disk_tier.cc has 8 MiB in flight), and few beside the copies of
// neighbours. Multiples of 2048 elements are whole blocks of a disk even in bf16.
inline constexpr int64_t kUpdatePart = int64_t{2} << 20;

struct ResidencySpec {
  const Homes* homes = nullptr;
  // Where activations wait for the backward pass; nullopt: on the device where there is room, else at the host.
  std::optional<Tier> activations = Tier::kDevice;
  bool keep = true;  // whether copies may serve more than one stretch of touches
  // What activations, copies and scratch may take of the device, and copies of the host.
  Bytes device, host;
  const DeviceRates* rates = nullptr;
  LinkRates links;
  int threads = 1;
  // States on the disk of weights with more elements are updated so many at a time, so that the host need not hold
  // them whole. REQUIRES: positive; any number gives the same bits.
  int64_t update_part = kUpdatePart;
  // Of a step of one micro-batch: gradients that live on the device take their bytes only from where they are made on
  // (compile/step_layout.h), so that they are among what `device` has room for.
  bool gradients_last = false;
};

// Of tensors that take `whole` bytes, `of_element` all together for each element of the weight, what the update has at
// the host at once when they are on the disk: all, or as many parts as are under way.
Bytes UpdateAtHost(Bytes whole, Bytes of_element, int64_t update_part);
// The same of a weight's states.
Bytes StatesAtHost(Bytes states, int64_t update_part = kUpdatePart);

// Bytes of the device that activations, copies and scratch take at least: what is alive at each node when every copy is
// there for its touch alone, and the most of it.
struct LeastBytes {
  Bytes bytes;
  size_t node = 0;
  std::vector<Bytes> at;  // per node
};
// What lies in slots is not among it.
LeastBytes LeastOnDevice(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

// `parts`: empty for a graph that is one. REQUIRES: the graph verifies, all its values are on the device, and nothing
// of it has been made to update in place that the model does not (compile/fuse.h, UpdateInPlace, comes after).
PipelinedGraph Reside(const Graph& graph, const std::vector<PipelinePart>& parts, const ResidencySpec& spec);

}  // namespace temper
