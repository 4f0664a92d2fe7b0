// A cluster whose devices are so slow that every term of a small model's forecast is visible.
#pragma once

#include <fmt/core.h>

#include "base/check.h"
#include "cluster/cluster.h"

namespace temper {

inline Cluster SlowDevices(int devices) {
  const Result<Cluster> cluster = ParseCluster(fmt::format(R"(name: test
device:
  name: D
  memory: 1 GB
  bandwidth: 100 GB/s
  bandwidth_share: 1
  launch: 1 us
  f32: {{peak: 1 TFLOP/s, products: 1, attention: 1}}
host:
  devices: {}
  link: {{bandwidth: 10 GB/s, latency: 2 us}}
)",
                                                           devices),
                                               "test");
  TEMPER_CHECK(cluster.ok()) << cluster.status().message();
  return *cluster;
}

}  // namespace temper
