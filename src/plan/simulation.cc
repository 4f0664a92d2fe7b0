#include "plan/simulation.h"

#include <algorithm>
#include <array>

#include "compile/estimate/stages_estimate.h"

namespace temper {
std::string TraceText(const StepEstimate& estimate) {
  std::string text;
  OpenTrace(&text);
  for (const TraceRow& row : estimate.events) AppendTraceRow(row, &text);
  CloseTrace(0, &text);
  return text;
}

std::vector<StepEstimate> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                   bool keep_events) {
  TEMPER_CHECK(mesh.ranks() <= cluster.devices()) << mesh.ToString() << " on " << cluster.devices() << " devices";
  const int on_host = std::min(mesh.ranks(), cluster.devices_per_host);
  const DeviceRates host = cluster.HostRatesOf(on_host);
  return EstimateStages(stages, mesh,
                        {.device = &cluster.ShareOf(on_host).rates,
                         .host = &host,
                         .links = cluster.LinksOf(on_host),
                         .ranks = cluster.RankLinksOf(on_host),
                         .shared = cluster.shared},
                        keep_events);
}

StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events) {
  return std::move(Simulate(std::array{&program}, mesh, cluster, keep_events)[0]);
}

}  // namespace temper
