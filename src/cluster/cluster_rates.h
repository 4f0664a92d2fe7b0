// The rates of a run on a cluster, so that `temper plan --cluster FILE` and `temper train --rates FILE` decide alike.
#pragma once

#include "cluster/cluster.h"
#include "compile/run/run_rates.h"

namespace temper {

// Those of one of `ranks` ranks of a host. Measured ones are Rounded, so that noise decides little.
RunRates RatesOn(const Cluster& cluster, int ranks);

// A measured rate, rounded to the nearest power of 1.1. Rounding it again, or its first five digits, changes nothing.
double Rounded(double rate);
Cluster Rounded(Cluster cluster);  // all its rates, not links between ranks and peaks

}  // namespace temper
