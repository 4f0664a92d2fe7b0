#include "compile/estimate/stages_estimate.h"

#include <algorithm>

#include "compile/estimate/rank_clock.h"
#include "graph/ops/loss_scratch.h"
#include "graph/rule.h"
#include "graph/traffic_ops.h"

namespace temper {
namespace {

// Rates of a rank of that stage. `mesh` and `machine` must outlive the result.
StepRates RatesOf(const Mesh& mesh, int stage, const StageRates& machine) {
  StepRates rates{.device = machine.device, .host = machine.host, .links = machine.links, .shared = machine.shared};
  rates.exchange = [&mesh, stage, &links = machine.ranks](const Instruction& instruction, const Types& in,
                                                          const Cost& cost) -> StepRates::Exchange {
    const Attributes& a = instruction.attributes;
    if (instruction.op == TrafficOp::kSend) {
      const int each = mesh.ranks() / mesh.size(Axis::kPp);
      const int peer = static_cast<int>(a.Int("peer"));
      const bool inside = stage * each / links.ranks_per_host == peer * each / links.ranks_per_host;
      const Link& link = inside ? links.inside : links.between;
      return {{static_cast<double>(cost.sent.v) / link.bytes_per_second + link.latency.v},
              inside ? Bytes{} : cost.sent};
    }
    const AxisSet axes = *AxisSet::Parse(a.String("axes"));  // rules have checked it
    const auto ranks = static_cast<int>(a.Int("ranks"));
    const OpRule& rule = RuleOf(instruction.op);
    int turns = rule.turns != nullptr ? rule.turns(ranks) : 0;
    // Where ranks share the vocabulary, each chunk gathers the statistics of its rows.
    if (rule.on_logits) turns = static_cast<int>(NumLossChunks(LossScratchOf(in, a, 1), in[0].shape[0])) * (ranks - 1);
    const double share = ShareBetweenHosts(links, mesh, axes);
    return {CollectiveSeconds(links, mesh, axes, cost.sent, turns),
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

std::vector<StepEstimate> EstimateStages(std::span<const Program* const> stages, const Mesh& mesh,
                                         const StageRates& rates, bool keep_events) {
  if (stages.size() == 1 && !keep_events) {
    const Program& program = *stages[0];
    const StepRates of_rank = RatesOf(mesh, 0, rates);
    return {EstimateStep(program, of_rank)};
  }
  TEMPER_CHECK(static_cast<int>(stages.size()) == mesh.size(Axis::kPp))
      << stages.size() << " programs for " << mesh.ToString();
  std::vector<TimedSegments> timed;
  timed.reserve(stages.size());
  std::vector<RankClock> clocks;
  clocks.reserve(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    timed.push_back(TimeOf(*stages[stage], RatesOf(mesh, static_cast<int>(stage), rates)));
    clocks.emplace_back(*stages[stage], stages[stage]->schedule, timed.back(), rates.links, rates.shared, keep_events);
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

}  // namespace temper
