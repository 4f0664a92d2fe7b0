#include "cluster/cluster_rates.h"

#include <fmt/core.h>

#include <array>
#include <cmath>
#include <utility>

namespace temper {
namespace {

constexpr double kStep = 1.1;

// How many times as long something takes.
Contention ContentionRounded(const Contention& c) {
  return {.slows = Rounded(1 + c.slows) - 1, .slowed = Rounded(1 + c.slowed) - 1};
}

DeviceRates RatesRounded(const DeviceRates& rates) {
  DeviceRates rounded;
  const auto round = [](OpRate rate) {
    rate.launch.v = Rounded(rate.launch.v);
    rate.flops_per_second = Rounded(rate.flops_per_second);
    for (OpRate::Point& p : rate.bandwidth) p.bytes_per_second = Rounded(p.bytes_per_second);
    return rate;
  };
  for (const OpClass c : {OpClass::kProduct, OpClass::kNarrow, OpClass::kAttention, OpClass::kMemory}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      for (int op = 0; op < NumOps(); ++op) {
        const OpRate* own = rates.Own(static_cast<Op>(op), c, dtype);
        if (own != nullptr) rounded.SetOp(static_cast<Op>(op), c, dtype, round(*own));
      }
      rounded.SetClass(c, dtype, round(rates.OfClass(c, dtype)));
    }
  }
  rounded.set_tile(rates.tile());
  return rounded;
}

}  // namespace

double Rounded(double rate) {
  return rate > 0 ? std::pow(kStep, std::round(std::log(rate) / std::log(kStep))) : rate;
}

Cluster Rounded(Cluster cluster) {
  for (double* rate : {&cluster.disk_read, &cluster.disk_write, &cluster.to_device, &cluster.from_device}) {
    *rate = Rounded(*rate);
  }
  for (auto& [ranks, share] : cluster.shares) {
    share.rates = RatesRounded(share.rates);
    share.copies = Rounded(share.copies);
    share.beside_copies = ContentionRounded(share.beside_copies);
    share.beside_disk = ContentionRounded(share.beside_disk);
  }
  return cluster;
}

RunRates RatesOn(const Cluster& cluster, int ranks) {
  const bool measured = cluster.shared || !cluster.date.empty();
  const Cluster used = measured ? Rounded(cluster) : cluster;
  RunRates rates{.device = used.ShareOf(ranks).rates,
                 .host = used.HostRatesOf(ranks),
                 .links = used.LinksOf(ranks),
                 .ranks = used.RankLinksOf(ranks)};
  // Choices do not depend on the data, which is read after them.
  rates.device.set_attended(1);
  rates.host.set_attended(1);
  rates.source = measured
                     ? fmt::format("measured on {}{}{}", cluster.device, cluster.date.empty() ? "" : ", ", cluster.date)
                     : "cluster " + cluster.name;
  return rates;
}

}  // namespace temper
