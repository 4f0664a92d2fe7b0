#include "compile/step_estimate.h"

#include <algorithm>
#include <array>
#include <map>

#include "program/waits.h"

namespace temper {
namespace {

// An instruction of a segment: the same for all its bindings.
struct Timed {
  OpSeconds kernel;
  StepRates::Exchange exchange;
  Cost cost;
  bool background = false;
  Seconds total() const { return kernel.total() + exchange.seconds; }
};

Timed TimeOf(const Instruction& instruction, const Segment& segment, const StepRates& rates) {
  const auto types_of = [&](const std::vector<int>& operands) {
    Types types;
    types.reserve(operands.size());
    for (const int k : operands) types.push_back(segment.operands[static_cast<size_t>(k)]);
    return types;
  };
  const Types in = types_of(instruction.inputs), out = types_of(instruction.outputs);
  const Attributes& a = instruction.attributes;
  Timed timed{.cost = RuleOf(instruction.op).cost(in, out, a), .background = a.Flag("background")};
  if (!IsCollective(instruction.op)) timed.kernel = rates.device->SecondsOf(instruction.op, in, out, a);
  if (timed.cost.sent.v > 0 && rates.exchange) timed.exchange = rates.exchange(instruction, in, timed.cost);
  return timed;
}

// The queues of a rank and what is issued to them.
class RankClock {
 public:
  RankClock(const StepRates& rates, bool keep_events) : shared_(rates.shared), keep_events_(keep_events) {}

  void Run(const Instruction& instruction, const Segment& segment, const Timed& timed, const Call& call, int block,
           const LaneCounts& awaited) {
    StepEstimate& s = result_;
    const Seconds duration = timed.total();
    // When what it waits for is done. In its own lane an instruction comes after the others without waiting.
    Seconds ready;
    for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
      if (awaited[lane] > 0) ready = std::max(ready, done_[lane][awaited[lane] - 1]);
    }
    Seconds begin;
    const size_t lane = LaneOf(instruction.op);
    // In the background of a shared machine a collective still takes a core from the kernels.
    const bool beside = timed.background && !shared_;
    if (beside) {
      const Seconds free = done_[lane].empty() ? Seconds{} : done_[lane].back();
      begin = std::max({now_, free, ready});
      done_[lane].push_back(begin + duration);
      s.hidden += duration;
    } else {
      if (timed.background) done_[lane].push_back(now_);
      WaitUntil(ready);
      begin = now_;
      now_ += duration;
      s.arithmetic += timed.kernel.arithmetic;
      s.memory += timed.kernel.memory;
      s.launches += timed.kernel.launch;
      s.collectives += timed.exchange.seconds;
    }
    s.sent_between_hosts += timed.exchange.between_hosts;
    s.sent_within_host += timed.cost.sent - timed.exchange.between_hosts;
    OpTotal& total = totals_[{instruction.op, segment.phase}];
    ++total.runs;
    total.seconds += duration;
    if (keep_events_) {
      s.events.push_back({instruction.op, segment.phase, block, call.micro_batch, beside ? "communicate" : "compute",
                          begin, duration, timed.cost.read + timed.cost.written, timed.cost.flops});
    }
  }

  void EndMicroBatch() { result_.micro_batches.push_back(now_); }

  StepEstimate Finish() {
    StepEstimate& s = result_;
    for (const std::vector<Seconds>& done : done_) {
      if (!done.empty()) WaitUntil(done.back());
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
  void WaitUntil(Seconds ready) {
    if (ready <= now_) return;
    result_.waiting += Seconds{ready.v - now_.v};
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
                                                   {collectives + waiting, "communication"}};
  return std::max_element(std::begin(terms), std::end(terms))->second;
}

StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events) {
  std::vector<std::vector<Timed>> timed;
  for (const Segment& segment : program.segments) {
    timed.emplace_back();
    for (const Instruction& i : segment.instructions) timed.back().push_back(TimeOf(i, segment, rates));
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
      clock.Run(segment.instructions[i], segment, timed[s][i], call, binding.block, waits[at]);
    }
  }
  return clock.Finish();
}

}  // namespace temper
