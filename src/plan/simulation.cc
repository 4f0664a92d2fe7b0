#include "plan/simulation.h"

#include <algorithm>
#include <map>

#include "graph/ops/loss_scratch.h"
#include "program/waits.h"

namespace temper {
namespace {

// An instruction of a segment: the same for all its bindings.
struct Timed {
  OpSeconds kernel;
  Seconds collective;  // to others
  Cost cost;
  Bytes between_hosts;  // of what is sent
  bool background = false;
  Seconds total() const { return kernel.total() + collective; }
};

int TurnsOf(Op op, int64_t ranks) {
  return static_cast<int>(op == Op::kAllReduce ? 2 * (ranks - 1) : ranks - 1);
}

Timed TimeOf(const Instruction& instruction, const Segment& segment, const Mesh& mesh, const Cluster& cluster,
             const DeviceRates& rates) {
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
  if (!IsCollective(instruction.op)) timed.kernel = rates.SecondsOf(instruction.op, in, out, a);
  if (timed.cost.sent.v > 0) {
    const AxisSet axes = *AxisSet::Parse(a.String("axes"));  // rules have checked it
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

// The two queues of a rank and what is issued to them.
class RankClock {
 public:
  RankClock(const Cluster& cluster, bool keep_events) : shared_(cluster.shared), keep_events_(keep_events) {}

  void Run(const Instruction& instruction, const Segment& segment, const Timed& timed, const Call& call, int block,
           uint32_t awaited) {
    Simulation& s = result_;
    const Seconds duration = timed.total();
    Seconds begin;
    // In the background of a shared machine a collective still takes a core from the kernels.
    const bool beside = timed.background && !shared_;
    if (beside) {
      begin = std::max(now_, communicate_free_);
      communicate_free_ = begin + duration;
      done_.push_back(communicate_free_);
      s.hidden += duration;
    } else {
      if (timed.background) done_.push_back(now_);
      if (awaited > 0 && done_[awaited - 1] > now_) {
        s.waiting += Seconds{done_[awaited - 1].v - now_.v};
        now_ = done_[awaited - 1];
      }
      begin = now_;
      now_ += duration;
      s.arithmetic += timed.kernel.arithmetic;
      s.memory += timed.kernel.memory;
      s.launches += timed.kernel.launch;
      s.collectives += timed.collective;
    }
    s.sent_between_hosts += timed.between_hosts;
    s.sent_within_host += timed.cost.sent - timed.between_hosts;
    OpTotal& total = totals_[{instruction.op, segment.phase}];
    ++total.runs;
    total.seconds += duration;
    if (keep_events_) {
      s.events.push_back({instruction.op, segment.phase, block, call.micro_batch, beside ? "communicate" : "compute",
                          begin, duration, timed.cost.read + timed.cost.written, timed.cost.flops});
    }
  }

  void EndMicroBatch() { result_.micro_batches.push_back(now_); }

  Simulation Finish() {
    Simulation& s = result_;
    if (communicate_free_ > now_) {
      s.waiting += Seconds{communicate_free_.v - now_.v};
      now_ = communicate_free_;
    }
    s.step = now_;
    s.hidden = {std::max(0.0, s.hidden.v - s.waiting.v)};
    for (auto& [key, total] : totals_) {
      total.op = key.first;
      total.phase = key.second;
      s.ops.push_back(total);
    }
    std::stable_sort(s.ops.begin(), s.ops.end(),
                     [](const OpTotal& a, const OpTotal& b) { return a.seconds > b.seconds; });
    return std::move(s);
  }

 private:
  const bool shared_, keep_events_;
  Seconds now_, communicate_free_;
  std::vector<Seconds> done_;  // per background instruction issued: when it ends
  std::map<std::pair<Op, Phase>, OpTotal> totals_;
  Simulation result_;
};

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
                                                   {collectives + waiting, "communication"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

Simulation Simulate(const Program& program, const Mesh& mesh, const Cluster& cluster, bool keep_events) {
  TEMPER_CHECK(mesh.size(Axis::kPp) == 1) << mesh.ToString() << ": stages do not do alike";
  TEMPER_CHECK(mesh.ranks() <= cluster.devices()) << mesh.ToString() << " on " << cluster.devices() << " devices";
  const DeviceRates& rates = cluster.ShareOf(std::min(mesh.ranks(), cluster.devices_per_host)).rates;
  std::vector<std::vector<Timed>> timed;
  for (const Segment& segment : program.segments) {
    timed.emplace_back();
    for (const Instruction& i : segment.instructions) timed.back().push_back(TimeOf(i, segment, mesh, cluster, rates));
  }
  const std::vector<LaneCounts> waits = FindWaits(program);
  RankClock clock(cluster, keep_events);
  size_t at = 0;
  for (const Call& call : program.schedule) {
    if (call.kind == Call::Kind::kStoreOutputs) clock.EndMicroBatch();
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const auto s = static_cast<size_t>(binding.segment);
    const Segment& segment = program.segments[s];
    for (size_t i = 0; i < segment.instructions.size(); ++i, ++at) {
      clock.Run(segment.instructions[i], segment, timed[s][i], call, binding.block, waits[at][kCollectiveLane]);
    }
  }
  return clock.Finish();
}

}  // namespace temper
