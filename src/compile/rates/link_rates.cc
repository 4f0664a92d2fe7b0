#include "compile/rates/link_rates.h"

namespace temper {

Seconds LinkRates::SecondsOf(Tier from, Tier to, Bytes bytes) const {
  const bool of_disk = from == Tier::kDisk || to == Tier::kDisk;
  const bool towards_device = to < from;
  const double rate = of_disk          ? (towards_device ? disk_read : disk_write)
                      : towards_device ? host_to_device
                                       : device_to_host;
  return latency + Seconds{static_cast<double>(bytes.v) / rate};
}

Seconds LinkRates::SecondsBesideKernels(Tier from, Tier to, Bytes bytes) const {
  const bool of_disk = from == Tier::kDisk || to == Tier::kDisk;
  return {SecondsOf(from, to, bytes).v * (1 + (of_disk ? disk : copies).slowed)};
}

}  // namespace temper
