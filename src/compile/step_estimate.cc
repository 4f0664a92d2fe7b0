#include "compile/step_estimate.h"

#include <algorithm>
#include <array>
#include <map>

#include "program/waits.h"

namespace temper {
namespace {

// An instruction of a segment: the same for all its bindings, whose operands lie in the same tiers.
struct Timed {
  OpSeconds kernel;
  StepRates::Exchange exchange;
  Seconds move;
  Cost cost;
  bool background = false;
  Seconds total() const { return kernel.total() + exchange.seconds + move; }
};

Timed TimeOf(const Instruction& instruction, const Segment& segment, const Binding& binding, const StepRates& rates) {
  const auto types_of = [&](const std::vector<int>& operands) {
    Types types;
    types.reserve(operands.size());
    for (const int k : operands) types.push_back(segment.operands[static_cast<size_t>(k)]);
    return types;
  };
  const Types in = types_of(instruction.inputs), out = types_of(instruction.outputs);
  const Attributes& a = instruction.attributes;
  Timed timed{.cost = RuleOf(instruction.op).cost(in, out, a), .background = a.Flag("background")};
  const auto tier_of = [&](int operand) { return TierOf(binding.offsets[static_cast<size_t>(operand)]); };
  if (IsMove(instruction.op)) {
    timed.move = rates.links.SecondsOf(tier_of(instruction.inputs[0]), tier_of(instruction.outputs[0]), in[0].bytes());
  } else if (!IsCollective(instruction.op)) {
    const bool hosted = !instruction.outputs.empty() && tier_of(instruction.outputs[0]) == Tier::kHost;
    const DeviceRates& processor = hosted && rates.host != nullptr ? *rates.host : *rates.device;
    timed.kernel = processor.SecondsOf(instruction.op, in, out, a);
  }
  if (timed.cost.sent.v > 0 && rates.exchange) timed.exchange = rates.exchange(instruction, in, timed.cost);
  return timed;
}

// The queues of a rank and what is issued to them.
class RankClock {
 public:
  RankClock(const StepRates& rates, bool keep_events) : shared_(rates.shared), keep_events_(keep_events) {}

  void Run(const Instruction& instruction, const Segment& segment, const Binding& binding, const Timed& timed,
           const Call& call, const LaneCounts& awaited) {
    StepEstimate& s = result_;
    const Seconds duration = timed.total();
    const size_t lane = LaneOf(instruction, binding);
    Seconds begin;
    // In the background of a shared machine a collective still takes a core from the kernels. A move does not: it waits
    // for a disk, or is one thread's copy.
    const bool beside = timed.background && !(shared_ && lane == kCollectiveLane);
    if (beside) {
      // In its own lane it comes after the others without waiting for them.
      begin = done_[lane].empty() ? now_ : std::max(now_, done_[lane].back());
      for (size_t other = 0; other < kBackgroundLanes; ++other) {
        if (awaited[other] > 0) begin = std::max(begin, done_[other][awaited[other] - 1]);
      }
      done_[lane].push_back(begin + duration);
      s.hidden += duration;
    } else {
      if (timed.background) done_[lane].push_back(now_);
      for (size_t other = 0; other < kBackgroundLanes; ++other) {
        if (awaited[other] > 0) WaitUntil(done_[other][awaited[other] - 1], other);
      }
      begin = now_;
      now_ += duration;
      s.arithmetic += timed.kernel.arithmetic;
      s.memory += timed.kernel.memory;
      s.launches += timed.kernel.launch;
      s.collectives += timed.exchange.seconds;
      s.moves += timed.move;
    }
    s.sent_between_hosts += timed.exchange.between_hosts;
    s.sent_within_host += timed.cost.sent - timed.exchange.between_hosts;
    OpTotal& total = totals_[{instruction.op, segment.phase}];
    ++total.runs;
    total.seconds += duration;
    if (keep_events_) {
      s.events.push_back({instruction.op, segment.phase, binding.block, call.micro_batch,
                          beside ? "communicate" : "compute", begin, duration, timed.cost.read + timed.cost.written,
                          timed.cost.flops});
    }
  }

  void EndMicroBatch() { result_.micro_batches.push_back(now_); }

  StepEstimate Finish() {
    StepEstimate& s = result_;
    for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
      if (!done_[lane].empty()) WaitUntil(done_[lane].back(), lane);
    }
    s.step = now_;
    s.hidden = {std::max(0.0, s.hidden.v - s.waiting.v - s.stalled.v)};
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
  void WaitUntil(Seconds ready, size_t lane) {
    if (ready <= now_) return;
    (lane < kFirstMoveLane ? result_.waiting : result_.stalled) += Seconds{ready.v - now_.v};
    now_ = ready;
  }

  const bool shared_, keep_events_;
  Seconds now_;
  std::array<std::vector<Seconds>, kBackgroundLanes> done_;  // per instruction issued: when it ends
  std::map<std::pair<Op, Phase>, OpTotal> totals_;
  StepEstimate result_;
};

}  // namespace

const char* StepEstimate::Bottleneck() const {
  const std::pair<Seconds, const char*> terms[] = {{arithmetic, "arithmetic"},
                                                   {memory, "memory bandwidth"},
                                                   {launches, "launching kernels"},
                                                   {collectives + waiting, "communication"},
                                                   {moves + stalled, "moves between memory tiers"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events) {
  std::vector<std::vector<Timed>> timed(program.segments.size());
  for (const Binding& binding : program.bindings) {
    const auto s = static_cast<size_t>(binding.segment);
    if (!timed[s].empty()) continue;
    const Segment& segment = program.segments[s];
    for (const Instruction& i : segment.instructions) timed[s].push_back(TimeOf(i, segment, binding, rates));
  }
  const std::vector<LaneCounts> waits = FindWaits(program);
  RankClock clock(rates, keep_events);
  size_t at = 0;
  for (const Call& call : program.schedule) {
    if (call.kind == Call::Kind::kStoreOutputs) clock.EndMicroBatch();
    if (call.kind != Call::Kind::kRun) continue;
    const Binding& binding = program.bindings[static_cast<size_t>(call.binding)];
    const auto s = static_cast<size_t>(binding.segment);
    const Segment& segment = program.segments[s];
    for (size_t i = 0; i < segment.instructions.size(); ++i, ++at) {
      clock.Run(segment.instructions[i], segment, binding, timed[s][i], call, waits[at]);
    }
  }
  return clock.Finish();
}

}  // namespace temper
