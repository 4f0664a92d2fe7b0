#include "compile/estimate/rank_clock.h"

#include <algorithm>
#include <utility>

#include "compile/estimate/repeats.h"
#include "graph/ops/move_part.h"

namespace temper {
namespace {

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
  if (IsTransfer(instruction.op)) {
    timed.peer = static_cast<int>(a.Int("peer"));
  } else if (IsMove(instruction.op)) {
    timed.move = rates.links.SecondsOf(tier_of(instruction.inputs[0]), tier_of(instruction.outputs[0]),
                                       BytesOnLink(in[0], in.size() == 2 ? &in[1] : nullptr, out[0], a));
  } else if (!IsCollective(instruction.op)) {
    const bool hosted = !instruction.outputs.empty() && tier_of(instruction.outputs[0]) == Tier::kHost;
    const DeviceRates& processor = hosted && rates.host != nullptr ? *rates.host : *rates.device;
    timed.kernel = processor.SecondsOf(instruction.op, in, out, a);
  }
  if (timed.cost.sent.v > 0 && rates.exchange) {
    timed.exchange = rates.exchange(instruction, in, timed.cost);
    timed.meets_stages = timed.peer < 0 && AxisSet::Parse(a.String("axes"))->Has(Axis::kPp);  // rules have checked it
  }
  return timed;
}

}  // namespace

TimedSegments TimeOf(const Program& program, const StepRates& rates) {
  TimedSegments timed(program.segments.size());
  for (const Binding& binding : program.bindings) {
    const auto s = static_cast<size_t>(binding.segment);
    if (!timed[s].empty()) continue;
    const Segment& segment = program.segments[s];
    for (const Instruction& i : segment.instructions) timed[s].push_back(TimeOf(i, segment, binding, rates));
  }
  return timed;
}

RankClock::RankClock(const Program& program, std::span<const Call> schedule, const TimedSegments& timed,
                     const LinkRates& links, bool shared, bool keep_events)
    : program_(program),
      schedule_(schedule),
      timed_(timed),
      shared_(shared),
      keep_events_(keep_events),
      waits_(FindWaits(program, schedule)),
      moves_(links) {}

RankClock::Item RankClock::ItemNow() const {
  const Call& call = schedule_[call_];
  const Binding& binding = program_.bindings[static_cast<size_t>(call.binding)];
  const auto s = static_cast<size_t>(binding.segment);
  return {&program_.segments[s].instructions[instruction_], &program_.segments[s], &timed_[s][instruction_], &call,
          &binding};
}

bool RankClock::Advance() {
  bool moved = false;
  while (!done()) {
    const Call& call = schedule_[call_];
    if (call.kind == Call::Kind::kStoreOutputs) result_.micro_batches.push_back(now_);
    const bool runs = call.kind == Call::Kind::kRun;
    const size_t count =
        runs ? timed_[static_cast<size_t>(program_.bindings[static_cast<size_t>(call.binding)].segment)].size() : 0;
    for (; instruction_ < count; ++instruction_, ++at_) {
      if (!Run(ItemNow())) return moved;
      moved = true;
    }
    instruction_ = 0;
    ++call_;
    moved = true;
  }
  return moved;
}

void RankClock::WaitUntil(Seconds time, Seconds* term) {
  if (time <= now_) return;
  const Seconds waits{time.v - now_.v};
  moves_.Idle(waits);
  *term += waits;
  now_ = time;
}

void RankClock::Await(size_t lane, uint32_t count) {
  if (count == 0) return;
  if (lane < kFirstMoveLane) return WaitUntil(done_[lane][count - 1], TermOf(lane));
  const Seconds waited = moves_.Wait(lane, count);
  *TermOf(lane) += waited;
  now_ += waited;
}

bool RankClock::HasTimes(size_t lane, uint32_t count) const {
  return lane >= kFirstMoveLane || done_[lane].size() >= count;
}

Seconds* RankClock::TermOf(size_t lane) {
  if (IsCollectiveLane(lane)) return &result_.waiting;
  return lane < kFirstMoveLane ? &result_.stages : &result_.stalled;
}

// False if it needs a transfer or other stages whose time is not known yet.
bool RankClock::Run(const Item& item) {
  const LaneCounts& waits = waits_[at_];
  for (size_t lane = 0; lane < kBackgroundLanes; ++lane) {
    if (!HasTimes(lane, waits[lane])) return false;
  }
  for (size_t lane = 0; lane < kBackgroundLanes; ++lane) Await(lane, waits[lane]);
  const Timed& timed = *item.timed;
  const Seconds duration = timed.total();
  const size_t lane = LaneOf(*item.instruction, *item.binding);
  if (timed.peer >= 0) {
    issued_[lane].push_back({item, now_, result_.events.size()});
    Record(item, kQueueOfLane[lane], now_, {});
    return true;
  }
  if (timed.meets_stages) {
    arrived_ = now_;
    if (!met_) return false;
    WaitUntil(*met_, &result_.stages);
    arrived_.reset();
    met_.reset();
  }
  if (timed.background && lane >= kFirstMoveLane) {
    moves_.Issue(lane, duration);
    issued_[lane].push_back({item, now_, result_.events.size()});
    Record(item, kQueueOfLane[lane], now_, {});
    return true;
  }
  // In the background of a shared machine a collective still takes the cores of the kernels.
  if (timed.background && !(shared_ && IsCollectiveLane(lane))) {
    const Seconds begin = std::max(now_, free_[lane]);
    free_[lane] = begin + duration;
    done_[lane].push_back(free_[lane]);
    result_.hidden += duration;
    Count(item, duration);
    Record(item, kQueueOfLane[lane], begin, duration);
    return true;
  }
  const Seconds begin = now_, beside = moves_.Compute(timed.kernel.total());
  const Seconds rest{duration.v - timed.kernel.total().v};
  if (rest.v > 0) moves_.Idle(rest);
  now_ += beside + rest;
  if (timed.background) done_[lane].push_back(begin);
  result_.stalled += Seconds{beside.v - timed.kernel.total().v};
  result_.arithmetic += timed.kernel.arithmetic;
  result_.memory += timed.kernel.memory;
  result_.launches += timed.kernel.launch;
  result_.collectives += timed.exchange.seconds;
  result_.moves += timed.move;
  Count(item, beside + rest);
  Record(item, kComputeQueue, begin, beside + rest);
  return true;
}

void RankClock::Count(const Item& item, Seconds duration) {
  const Timed& timed = *item.timed;
  result_.sent_between_hosts += timed.exchange.between_hosts;
  result_.sent_within_host += timed.cost.sent - timed.exchange.between_hosts;
  OpTotal& total = totals_[{item.instruction->op, item.segment->phase}];
  ++total.runs;
  total.seconds += duration;
}

void RankClock::Record(const Item& item, const char* queue, Seconds begin, Seconds duration) {
  if (!keep_events_) return;
  const Cost& cost = item.timed->cost;
  result_.events.push_back({item.instruction->op, item.segment->phase, item.binding->block, item.call->micro_batch,
                            queue, begin, duration, cost.read + cost.written, cost.flops});
}

std::optional<RankClock::Transfer> RankClock::NextTransfer(size_t lane) const {
  const size_t next = done_[lane].size();
  if (next == issued_[lane].size()) return std::nullopt;
  const Issued& issued = issued_[lane][next];
  return Transfer{issued.item.timed->peer, std::max(issued.time, free_[lane]), issued.item.timed->exchange.seconds};
}

void RankClock::FinishTransfer(size_t lane, Seconds begin, Seconds end) {
  const Issued& issued = issued_[lane][done_[lane].size()];
  Count(issued.item, {end.v - begin.v});
  if (keep_events_) {
    result_.events[issued.event].begin = begin;
    result_.events[issued.event].duration = {end.v - begin.v};
  }
  free_[lane] = end;
  done_[lane].push_back(end);
}

StepEstimate RankClock::Finish() {
  TEMPER_CHECK(done()) << "Finish() called before the end of the schedule";
  for (size_t lane = 0; lane < kFirstMoveLane; ++lane) WaitUntil(free_[lane], TermOf(lane));
  for (size_t lane = kFirstMoveLane; lane < kBackgroundLanes; ++lane) {
    Await(lane, static_cast<uint32_t>(moves_.issued(lane)));
  }
  for (size_t lane = kFirstMoveLane; lane < kBackgroundLanes; ++lane) {
    for (size_t n = 0; n < issued_[lane].size(); ++n) {
      const MoveLanes::Span& span = moves_.SpanOf(lane, n);
      const Seconds duration{span.end.v - span.begin.v};
      result_.hidden += duration;
      Count(issued_[lane][n].item, duration);
      if (!keep_events_) continue;
      result_.events[issued_[lane][n].event].begin = span.begin;
      result_.events[issued_[lane][n].event].duration = duration;
    }
  }
  StepEstimate& s = result_;
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

namespace {

StepEstimate Walked(const Program& program, std::span<const Call> schedule, const TimedSegments& timed,
                    const StepRates& rates, bool keep_events) {
  RankClock clock(program, schedule, timed, rates.links, rates.shared, keep_events);
  for (bool moved = true; moved;) {
    moved = clock.Advance();
    for (const size_t lane : {kSendLane, kReceiveLane}) {
      while (const auto transfer = clock.NextTransfer(lane)) {
        clock.FinishTransfer(lane, transfer->ready, transfer->ready + transfer->duration);
        moved = true;
      }
    }
    if (!clock.arrived()) continue;
    clock.Meet(*clock.arrived());
    moved = true;
  }
  return clock.Finish();
}

}  // namespace

StepEstimate EstimateStep(const Program& program, const StepRates& rates, bool keep_events) {
  const TimedSegments timed = TimeOf(program, rates);
  const auto walk = [&](std::span<const Call> schedule) {
    return Walked(program, schedule, timed, rates, keep_events);
  };
  return keep_events ? walk(program.schedule) : EstimateRepeated(program.schedule, walk);
}

}  // namespace temper
