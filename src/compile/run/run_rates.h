// RunRates: the speeds by which a run that memory limits decides what it recomputes, in which tiers values live, when
// moves are issued and how the loss is cut. They are an input of a run (option `rates`); cluster/cluster_rates.h takes
// them from a cluster.
#pragma once

#include <string>

#include "compile/memory/memory_spec.h"

namespace temper {

struct RunRates {
  DeviceRates device, host;
  LinkRates links;
  RankLinks ranks;
  std::string source;  // "measured on Intel Xeon ..., 2 threads, avx512_bf16, 2026-11-24", "cluster 8xH100"
};

// The constants of MemorySpecOf, for plans on a cluster that should choose by them.
RunRates RatesIn(const MemorySpec& memory);

void UseRates(const RunRates& rates, MemorySpec* memory);

}  // namespace temper
