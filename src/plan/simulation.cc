#include "plan/simulation.h"

#include <algorithm>

#include "graph/ops/loss_scratch.h"

namespace temper {
namespace {

int TurnsOf(Op op, int64_t ranks) {
  return static_cast<int>(op == Op::kAllReduce ? 2 * (ranks - 1) : ranks - 1);
}

}  // namespace

std::string TraceText(const StepEstimate& estimate) {
  std::string text;
  OpenTrace(&text);
  for (const TraceRow& row : estimate.events) AppendTraceRow(row, &text);
  CloseTrace(0, &text);
  return text;
}

StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events) {
  TEMPER_CHECK(mesh.size(Axis::kPp) == 1) << mesh.ToString() << ": stages do not do alike";
  TEMPER_CHECK(mesh.ranks() <= cluster.devices()) << mesh.ToString() << " on " << cluster.devices() << " devices";
  const int on_host = std::min(mesh.ranks(), cluster.devices_per_host);
  const DeviceRates host = cluster.HostRatesOf(on_host);
  StepRates rates{.device = &cluster.ShareOf(on_host).rates,
                  .host = &host,
                  .links = cluster.LinksOf(on_host),
                  .shared = cluster.shared};
  rates.exchange = [&](const Instruction& instruction, const Types& in, const Cost& cost) -> StepRates::Exchange {
    const AxisSet axes = *AxisSet::Parse(instruction.attributes.String("axes"));  // rules have checked it
    const int64_t ranks = instruction.attributes.Int("ranks");
    const auto chunks = [&] { return NumLossChunks(LossScratchOf(in, instruction.attributes, 1), in[0].shape[0]); };
    const int turns =
        IsCollective(instruction.op) ? TurnsOf(instruction.op, ranks) : static_cast<int>(chunks() * (ranks - 1));
    const double share = ShareBetweenHosts(cluster, mesh, axes);
    return {CollectiveSeconds(cluster, mesh, axes, cost.sent, turns),
            {static_cast<int64_t>(static_cast<double>(cost.sent.v) * share)}};
  };
  return EstimateStep(program, rates, keep_events);
}

}  // namespace temper
