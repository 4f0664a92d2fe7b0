#include "plan/measured_step.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "program/waits.h"

namespace temper {
namespace {

struct Span {
  size_t begin = 0, end = 0;  // of rows
  double seconds = 0;
};

const char* QueueNamed(const std::string& name) {
  const auto it = std::find(kQueueOfLane.begin(), kQueueOfLane.end(), name);
  return it == kQueueOfLane.end() ? kComputeQueue : *it;
}

Result<TraceRow> RowOf(const Json& event, size_t index, const std::string& path) {
  const auto bad = [&](const char* what) {
    return Corrupt(
        fmt::format("{}: event {} has no {}: it is not a trace of temper train --profile", path, index, what));
  };
  const auto text = [&](const char* key) {
    const auto it = event.find(key);
    return it != event.end() && it->is_string() ? it->get<std::string>() : std::string();
  };
  const auto number = [](const Json& in, const char* key) {
    const auto it = in.is_object() ? in.find(key) : in.end();
    return in.is_object() && it != in.end() && it->is_number() ? it->get<double>() : -1e300;
  };
  if (!event.is_object()) return bad("fields");
  const auto op = ParseOp(text("name"));
  const auto phase = ParsePhase(text("cat"));
  if (!op) return bad("known name");
  if (!phase) return bad("known cat");
  const Json args = event.value("args", Json::object());
  const double begin = number(event, "ts"), duration = number(event, "dur");
  const double block = number(args, "block"), micro_batch = number(args, "micro_batch");
  if (begin < 0 || begin > 1e15 || duration < 0 || duration > 1e15) return bad("time");
  if (block < kBlockAfter || block > 1e6 || micro_batch < 0 || micro_batch > 1e6) return bad("block or micro_batch");
  return TraceRow{.op = *op,
                  .phase = *phase,
                  .block = static_cast<int>(block),
                  .micro_batch = static_cast<int>(micro_batch),
                  .queue = QueueNamed(text("tid")),
                  .begin = {begin * 1e-6},
                  .duration = {duration * 1e-6}};
}

}  // namespace

Result<std::vector<TraceRow>> ReadMeasuredStep(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ReadJsonFile(env, path));
  const auto events = json.is_object() ? json.find("traceEvents") : json.end();
  if (!json.is_object() || events == json.end() || !events->is_array()) {
    return Corrupt(path + ": no traceEvents: it is not a trace of temper train --profile");
  }
  std::vector<TraceRow> rows;
  for (size_t i = 0; i < events->size(); ++i) {
    const Json& event = (*events)[i];
    const auto program = event.is_object() ? event.find("pid") : event.end();
    const bool other = event.is_object() && program != event.end() && program->is_string() && *program != kTrainProgram;
    if (other) continue;  // evaluations are not part of a step
    TEMPER_ASSIGN_OR_RETURN(rows.emplace_back(), RowOf((*events)[i], i, path));
  }
  std::stable_sort(rows.begin(), rows.end(), [](const TraceRow& a, const TraceRow& b) { return a.begin < b.begin; });
  std::vector<Span> steps;
  size_t begin = 0;
  bool updating = false;
  for (size_t i = 0; i <= rows.size(); ++i) {
    const bool ends = updating && (i == rows.size() || rows[i].phase == Phase::kForward);
    if (ends) {
      const double last = rows[i - 1].begin.v + rows[i - 1].duration.v;
      steps.push_back({begin, i, last - rows[begin].begin.v});
      begin = i;
      updating = false;
    }
    if (i < rows.size()) updating |= rows[i].phase == Phase::kUpdate;
  }
  if (steps.empty()) return Corrupt(path + ": has no complete step: profile a run of at least two steps (--profile)");
  std::sort(steps.begin(), steps.end(), [](const Span& a, const Span& b) { return a.seconds < b.seconds; });
  const Span& median = steps[steps.size() / 2];
  std::vector<TraceRow> step(rows.begin() + static_cast<std::ptrdiff_t>(median.begin),
                             rows.begin() + static_cast<std::ptrdiff_t>(median.end));
  const Seconds first = step.front().begin;
  for (TraceRow& row : step) row.begin = {row.begin.v - first.v};
  return step;
}

}  // namespace temper
