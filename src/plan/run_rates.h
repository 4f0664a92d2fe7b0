// RunRates: the speeds by which a run that memory limits decides what it recomputes, in which tiers values live, when
// moves are issued and how the loss is cut. They are an input of a run (option `rates`), taken from a cluster
// (plan/cluster.h), so that `temper plan --cluster FILE` and `temper train --rates FILE` decide alike.
#pragma once

#include <string>

#include "compile/memory/memory_spec.h"
#include "plan/cluster.h"

namespace temper {

struct RunRates {
  DeviceRates device, host;
  LinkRates links;
  std::string source;  // "measured on Intel Xeon ..., 2 threads, avx512_bf16, 2026-11-24", "cluster 8xH100"
};

// Those of one of `ranks` ranks of a host. Measured ones are Rounded, so that noise decides little.
RunRates RatesOn(const Cluster& cluster, int ranks);

// A measured rate, rounded to the nearest power of 1.1. Rounding it again, or its first five digits, changes nothing.
double Rounded(double rate);
Cluster Rounded(Cluster cluster);  // all its rates, not links between ranks and peaks

// The constants of MemorySpecOf, for plans on a cluster that should choose by them.
RunRates RatesIn(const MemorySpec& memory);

void UseRates(const RunRates& rates, MemorySpec* memory);

}  // namespace temper
