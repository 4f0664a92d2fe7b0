#include "plan/simulation.h"

#include <algorithm>
#include <array>

#include "graph/ops/loss_scratch.h"
#include "plan/rank_clock.h"

namespace temper {
namespace {

int TurnsOf(Op op, int64_t ranks) {
  return static_cast<int>(op == Op::kAllReduce ? 2 * (ranks - 1) : ranks - 1);
}

// Of a rank of that stage.
Timed TimeOf(const Instruction& instruction, const Segment& segment, const Mesh& mesh, int stage,
             const Cluster& cluster, const DeviceRates& rates) {
  const auto types_of = [&](const std::vector<int>& operands) {
    Types types;
    types.reserve(operands.size());
    for (const int k : operands) types.push_back(segment.operands[static_cast<size_t>(k)]);
    return types;
  };
  const Types in = types_of(instruction.inputs), out = types_of(instruction.outputs);
  const Attributes& a = instruction.attributes;
  Timed timed;
  timed.cost = RuleOf(instruction.op).cost(in, out, a);
  timed.background = a.Flag("background");
  if (IsTransfer(instruction.op)) {
    timed.peer = static_cast<int>(a.Int("peer"));
    if (instruction.op == Op::kRecv) return timed;
    const int stages = mesh.size(Axis::kPp), each = mesh.ranks() / stages;
    const bool inside = stage * each / cluster.devices_per_host == timed.peer * each / cluster.devices_per_host;
    const Link& link =
        inside ? cluster.ShareOf(std::min(mesh.ranks(), cluster.devices_per_host)).link : cluster.between_hosts;
    timed.collective = {static_cast<double>(timed.cost.sent.v) / link.bytes_per_second + link.latency.v};
    if (!inside) timed.between_hosts = timed.cost.sent;
    return timed;
  }
  if (!IsCollective(instruction.op)) timed.kernel = rates.SecondsOf(instruction.op, in, out, a);
  if (timed.cost.sent.v > 0) {
    const AxisSet axes = *AxisSet::Parse(a.String("axes"));  // rules have checked it
    timed.meets_stages = axes.Has(Axis::kPp);
    const int64_t ranks = a.Int("ranks");
    const int turns = IsCollective(instruction.op)
                          ? TurnsOf(instruction.op, ranks)
                          : static_cast<int>(NumLossChunks(LossScratchOf(in, a, 1), in[0].shape[0]) * (ranks - 1));
    timed.collective = CollectiveSeconds(cluster, mesh, axes, timed.cost.sent, turns);
    const double share = ShareBetweenHosts(cluster, mesh, axes);
    timed.between_hosts = {static_cast<int64_t>(static_cast<double>(timed.cost.sent.v) * share)};
  }
  return timed;
}

// Those transfers that both ends have come to get their times, and stages that all wait for each other go on.
bool Exchange(std::vector<RankClock>* clocks) {
  constexpr size_t kSends = LaneOf(Op::kSend), kReceives = LaneOf(Op::kRecv);
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

std::string TraceText(const Simulation& simulation) {
  std::string text;
  OpenTrace(&text);
  for (const TraceRow& row : simulation.events) AppendTraceRow(row, &text);
  CloseTrace(0, &text);
  return text;
}

const char* Simulation::Bottleneck() const {
  const std::pair<Seconds, const char*> terms[] = {{arithmetic, "arithmetic"},
                                                   {memory, "memory bandwidth"},
                                                   {launches, "launching kernels"},
                                                   {collectives + waiting, "communication"},
                                                   {stages, "waiting for other stages"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

std::vector<Simulation> Simulate(std::span<const Program* const> stages, const Mesh& mesh, const Cluster& cluster,
                                 bool keep_events) {
  TEMPER_CHECK(static_cast<int>(stages.size()) == mesh.size(Axis::kPp))
      << stages.size() << " programs for " << mesh.ToString();
  TEMPER_CHECK(mesh.ranks() <= cluster.devices()) << mesh.ToString() << " on " << cluster.devices() << " devices";
  const DeviceRates& rates = cluster.ShareOf(std::min(mesh.ranks(), cluster.devices_per_host)).rates;
  std::vector<std::vector<std::vector<Timed>>> timed(stages.size());
  std::vector<RankClock> clocks;
  clocks.reserve(stages.size());
  for (size_t stage = 0; stage < stages.size(); ++stage) {
    for (const Segment& segment : stages[stage]->segments) {
      auto& of_segment = timed[stage].emplace_back();
      for (const Instruction& i : segment.instructions) {
        of_segment.push_back(TimeOf(i, segment, mesh, static_cast<int>(stage), cluster, rates));
      }
    }
    clocks.emplace_back(*stages[stage], timed[stage], cluster.shared, keep_events);
  }
  for (bool moved = true; moved;) {
    moved = false;
    for (RankClock& clock : clocks) moved |= clock.Advance();
    moved |= Exchange(&clocks);
  }
  std::vector<Simulation> simulations;
  for (RankClock& clock : clocks) simulations.push_back(clock.Finish());
  return simulations;
}

Simulation Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events) {
  return std::move(Simulate(std::array{&program}, mesh, cluster, keep_events)[0]);
}

}  // namespace temper
