#include "plan/simulation.h"

#include <algorithm>
#include <array>

#include "compile/estimate/rank_clock.h"
#include "graph/ops/loss_scratch.h"
#include "graph/rule.h"

namespace temper {
namespace {

// Rates of a rank of that stage. `host`: rates of its machine's processor; must outlive the result.
StepRates RatesOf(const Mesh& mesh, int stage, const Cluster& cluster, const DeviceRates& host) {
  const int on_host = std::min(mesh.ranks(), cluster.devices_per_host);
  StepRates rates{.device = &cluster.ShareOf(on_host).rates,
                  .host = &host,
                  .links = cluster.LinksOf(on_host),
                  .shared = cluster.shared};
  rates.exchange = [&mesh, stage, &cluster, on_host](const Instruction& instruction, const Types& in,
                                                     const Cost& cost) -> StepRates::Exchange {
    const Attributes& a = instruction.attributes;
    if (instruction.op == Op::kSend) {
      const int each = mesh.ranks() / mesh.size(Axis::kPp);
      const int peer = static_cast<int>(a.Int("peer"));
      const bool inside = stage * each / cluster.devices_per_host == peer * each / cluster.devices_per_host;
      const Link& link = inside ? cluster.ShareOf(on_host).link : cluster.between_hosts;
      return {{static_cast<double>(cost.sent.v) / link.bytes_per_second + link.latency.v},
              inside ? Bytes{} : cost.sent};
    }
    const AxisSet axes = *AxisSet::Parse(a.String("axes"));  // rules have checked it
    const auto ranks = static_cast<int>(a.Int("ranks"));
    const OpRule& rule = RuleOf(instruction.op);
    int turns = rule.turns != nullptr ? rule.turns(ranks) : 0;
    // Where ranks share the vocabulary, each chunk gathers the statistics of its rows.
    if (rule.on_logits) turns = static_cast<int>(NumLossChunks(LossScratchOf(in, a, 1), in[0].shape[0])) * (ranks - 1);
    const double share = ShareBetweenHosts(cluster, mesh, axes);
    return {CollectiveSeconds(cluster, mesh, axes, cost.sent, turns),
            {static_cast<int64_t>(static_cast<double>(cost.sent.v) * share)}};
  };
  return rates;
}

// Gives times to transfers that both ends have reached, and lets stages that have met at a collective continue.
bool Exchange(std::vector<RankClock>* clocks) {
  constexpr size_t kSends = kSendLane, kReceives = kReceiveLane;
  bool moved = false;
  for (size_t from = 0; from < clocks->size(); ++from) {
    while (const auto send = (*clocks)[from].NextTransfer(kSends)) {
      RankClock& to = (*clocks)[static_cast<size_t>(send->peer)];
      const auto receive = to.NextTransfer(kReceives);
      if (!receive || receive->peer != static_cast<int>(from)) break;
      const Seconds begin = std::max(send->ready, receive->ready);
      (*clocks)[from].FinishTransfer(kSends, begin, begin + send->duration);
      to.FinishTransfer(kReceives, begin, begin + send->duration);
      moved = true;
    }
  }
  Seconds last;
  for (const RankClock& clock : *clocks) {
    if (!clock.arrived()) return moved;
    last = std::max(last, *clock.arrived());
  }
  for (RankClock& clock : *clocks) clock.Meet(last);
  return true;
}

}  // namespace

std::string TraceText(const StepEstimate& estimate) {
  std::string text;
  OpenTrace(&text);
  for (const TraceRow& row : estimate.events) AppendTraceRow(row, &text);
  CloseTrace(0, &text);
  return text;
}

std::vector<StepEstimate> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                   bool keep_events) {
  TEMPER_CHECK(static_cast<int>(stages.size()) == mesh.size(Axis::kPp))
      << stages.size() << " programs for " << mesh.ToString();
  TEMPER_CHECK(mesh.ranks() <= cluster.devices()) << mesh.ToString() << " on " << cluster.devices() << " devices";
  const DeviceRates host = cluster.HostRatesOf(std::min(mesh.ranks(), cluster.devices_per_host));
  const LinkRates links = cluster.LinksOf(std::min(mesh.ranks(), cluster.devices_per_host));
  std::vector<TimedSegments> timed;
  timed.reserve(stages.size());
  std::vector<RankClock> clocks;
  clocks.reserve(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    timed.push_back(TimeOf(*stages[stage], RatesOf(mesh, static_cast<int>(stage), cluster, host)));
    clocks.emplace_back(*stages[stage], timed.back(), links, cluster.shared, keep_events);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (RankClock& clock : clocks) moved |= clock.Advance();
    moved |= Exchange(&clocks);
  }
  std::vector<StepEstimate> estimates;
  for (RankClock& clock : clocks) estimates.push_back(clock.Finish());
  return estimates;
}

StepEstimate Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events) {
  return std::move(Simulate(std::array{&program}, mesh, cluster, keep_events)[0]);
}

}  // namespace temper
