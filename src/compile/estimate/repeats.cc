#include "compile/estimate/repeats.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "base/check.h"

namespace temper {
namespace {

// Micro-batches that are walked: queues and memory settle within a few.
constexpr size_t kFew = 16, kMore = 32;
// From this many on: steps of fewer are walked whole in a moment.
constexpr size_t kMany = 64;

bool LoadsInputs(const Call& call) {
  return call.kind == Call::Kind::kLoadInputs;
}

// `schedule` with `count` of its repeats.
std::vector<Call> WithRepeats(std::span<const Call> schedule, const Repeats& repeats, size_t count) {
  const auto at = [&](size_t call) { return schedule.begin() + static_cast<std::ptrdiff_t>(call); };
  std::vector<Call> calls(schedule.begin(), at(repeats.begin + count * repeats.each));
  calls.insert(calls.end(), at(repeats.begin + repeats.count * repeats.each), schedule.end());
  return calls;
}

// The line through `few` and `more`, at `times` their distance beyond `more`.
double Follow(double few, double more, double times) {
  return more + times * (more - few);
}
void Follow(Seconds StepEstimate::*term, const StepEstimate& few, double times, StepEstimate* more) {
  more->*term = {Follow((few.*term).v, (more->*term).v, times)};
}
void Follow(Bytes StepEstimate::*term, const StepEstimate& few, double times, StepEstimate* more) {
  (more->*term).v = static_cast<int64_t>(
      Follow(static_cast<double>((few.*term).v), static_cast<double>((more->*term).v), times) + 0.5);
}

}  // namespace

Repeats FindRepeats(std::span<const Call> schedule) {
  std::vector<size_t> loads;
  for (size_t k = 0; k < schedule.size(); ++k) {
    if (LoadsInputs(schedule[k])) loads.push_back(k);
  }
  Repeats best;
  const auto same = [&](size_t a, size_t b, size_t calls) {
    for (size_t k = 0; k < calls; ++k) {
      if (schedule[a + k].kind != schedule[b + k].kind || schedule[a + k].binding != schedule[b + k].binding)
        return false;
    }
    return true;
  };
  // A micro-batch ends where the next one loads its inputs: the last one is in no run.
  for (size_t first = 0; first + 1 < loads.size();) {
    const size_t each = loads[first + 1] - loads[first];
    size_t next = first + 1;
    while (next + 1 < loads.size() && loads[next + 1] - loads[next] == each && same(loads[first], loads[next], each)) {
      ++next;
    }
    if (next - first > best.count) best = {loads[first], each, next - first};
    first = next;
  }
  return best;
}

StepEstimate EstimateRepeated(std::span<const Call> schedule,
                              const std::function<StepEstimate(std::span<const Call>)>& walk) {
  const Repeats repeats = FindRepeats(schedule);
  if (repeats.count < kMany) return walk(schedule);
  const StepEstimate few = walk(WithRepeats(schedule, repeats, kFew));
  StepEstimate step = walk(WithRepeats(schedule, repeats, kMore));
  TEMPER_CHECK(step.events.empty()) << "events of micro-batches that are not walked";
  const double times = static_cast<double>(repeats.count - kMore) / static_cast<double>(kMore - kFew);
  // When micro-batches end: those between at equal distances.
  const double longer = times * (step.step.v - few.step.v);
  std::vector<Seconds> ends;
  const auto before = static_cast<size_t>(
      std::count_if(schedule.begin(), schedule.begin() + static_cast<std::ptrdiff_t>(repeats.begin), LoadsInputs));
  const std::vector<Seconds>& walked = step.micro_batches;
  if (walked.size() >= before + kMore) {
    const size_t last = before + kMore - 1;
    const double each = (walked[last].v - walked[last - (kMore - kFew)].v) / static_cast<double>(kMore - kFew);
    ends.assign(walked.begin(), walked.begin() + static_cast<std::ptrdiff_t>(last) + 1);
    for (size_t k = kMore; k < repeats.count; ++k) ends.push_back({ends.back().v + each});
    for (size_t k = last + 1; k < walked.size(); ++k) ends.push_back({walked[k].v + longer});
  }
  std::map<std::pair<Op, Phase>, OpTotal> before_more;
  for (const OpTotal& total : few.ops) before_more[{total.op, total.phase}] = total;
  for (OpTotal& total : step.ops) {
    const OpTotal& less = before_more[{total.op, total.phase}];
    total.runs += static_cast<int64_t>(times * static_cast<double>(total.runs - less.runs) + 0.5);
    total.seconds = {Follow(less.seconds.v, total.seconds.v, times)};
  }
  std::stable_sort(step.ops.begin(), step.ops.end(),
                   [](const OpTotal& a, const OpTotal& b) { return a.seconds > b.seconds; });
  for (Seconds StepEstimate::*const term :
       {&StepEstimate::step, &StepEstimate::arithmetic, &StepEstimate::memory, &StepEstimate::launches,
        &StepEstimate::collectives, &StepEstimate::moves, &StepEstimate::waiting, &StepEstimate::stalled,
        &StepEstimate::stages, &StepEstimate::hidden}) {
    Follow(term, few, times, &step);
  }
  for (Bytes StepEstimate::*const term : {&StepEstimate::sent_within_host, &StepEstimate::sent_between_hosts}) {
    Follow(term, few, times, &step);
  }
  step.micro_batches = std::move(ends);
  return step;
}

}  // namespace temper
