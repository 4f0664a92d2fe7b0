#include "plan/page.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>
#include <nlohmann/json.hpp>
#include <set>
#include <tuple>

#include "base/quantity.h"
#include "format/json.h"
#include "graph/rule.h"
#include "model/model.h"
#include "plan/live_memory.h"
#include "plan/page_template.h"
#include "program/waits.h"

namespace temper {
namespace {

// A page with more rectangles than this is slow to draw; later ones are left out, with a note on the page.
constexpr size_t kMostEvents = 20000;

// Rounded to nanoseconds, which is enough for display.
double ToNanoseconds(Seconds s) {
  return static_cast<double>(static_cast<int64_t>(s.v * 1e9 + 0.5)) * 1e-9;
}

// 0: kernels; others in the order of kQueueOfLane.
size_t QueueNumber(const TraceRow& row) {
  const auto it = std::find(kQueueOfLane.begin(), kQueueOfLane.end(), std::string_view(row.queue));
  return it == kQueueOfLane.end() ? 0 : 1 + static_cast<size_t>(it - kQueueOfLane.begin());
}

OrderedJson QueueNames() {
  OrderedJson names = {kComputeQueue};
  for (const char* name : kQueueOfLane) names.push_back(name);
  return names;
}

int LastMicroBatch(const std::vector<TraceRow>& rows) {
  int last = 0;
  for (const TraceRow& r : rows) last = std::max(last, r.micro_batch);
  return last;
}

OrderedJson EventsJson(const std::vector<TraceRow>& rows) {
  OrderedJson json = OrderedJson::array();
  const int last = LastMicroBatch(rows);
  for (const TraceRow& r : rows) {
    if (!IsShown(r.micro_batch, last)) continue;
    if (json.size() >= kMostEvents) break;
    json.push_back({ToString(r.op), static_cast<int>(r.phase), r.block, r.micro_batch, QueueNumber(r),
                    ToNanoseconds(r.begin), ToNanoseconds(r.duration)});
  }
  return json;
}

// The group whose colour an op has on the page. Other ops of the update belong to the optimizer, too.
const char* GroupOf(Op op, Phase phase) {
  const OpRule& rule = RuleOf(op);
  if (IsMove(op)) return "move";
  if (IsCollective(op)) return "collective";
  if (rule.kind == OpKind::kProduct) return "product";
  if (rule.kind == OpKind::kAttention) return "attention";
  return rule.update != nullptr || phase == Phase::kUpdate ? "optimizer" : "other";
}

OrderedJson GroupsJson(const std::vector<TraceRow>& rows) {
  OrderedJson json = OrderedJson::object();
  for (const TraceRow& r : rows) json[std::string(ToString(r.op))] = GroupOf(r.op, r.phase);
  return json;
}

// Where a queue works on micro-batches that are not shown: [queue, begin, end, first, last], micro-batches from 0.
OrderedJson LeftOutJson(const std::vector<TraceRow>& rows) {
  const int last = LastMicroBatch(rows);
  std::map<size_t, std::vector<const TraceRow*>> queues;
  for (const TraceRow& r : rows) queues[QueueNumber(r)].push_back(&r);
  OrderedJson json = OrderedJson::array();
  for (auto& [queue, events] : queues) {
    std::stable_sort(events.begin(), events.end(),
                     [](const TraceRow* a, const TraceRow* b) { return a->begin < b->begin; });
    bool open = false;  // the newest interval may grow: no event of a shown micro-batch came since
    for (const TraceRow* r : events) {
      if (IsShown(r->micro_batch, last)) {
        open = false;
        continue;
      }
      const double end = ToNanoseconds(r->begin + r->duration);
      if (!open) {
        json.push_back({queue, ToNanoseconds(r->begin), end, r->micro_batch, r->micro_batch});
      } else {
        OrderedJson& interval = json.back();
        interval[2] = std::max(interval[2].get<double>(), end);
        interval[3] = std::min(interval[3].get<int>(), r->micro_batch);
        interval[4] = std::max(interval[4].get<int>(), r->micro_batch);
      }
      open = true;
    }
  }
  return json;
}

// Per op and phase: planned and measured seconds of a whole step.
OrderedJson OpsJson(const StepEstimate& simulation, const std::vector<TraceRow>& measured) {
  std::map<std::pair<Op, Phase>, double> seconds;
  for (const TraceRow& r : measured) seconds[{r.op, r.phase}] += r.duration.v;
  OrderedJson json = OrderedJson::array();
  for (const OpTotal& op : simulation.ops) {
    const auto it = seconds.find({op.op, op.phase});
    json.push_back({fmt::format("{} {}", ToString(op.phase), ToString(op.op)), op.runs, op.seconds.v,
                    it == seconds.end() ? 0.0 : it->second});
  }
  return json;
}

// Temporaries and scratch while each event runs, in the order of the events. The simulation issues what the schedule
// lists, so the n-th event is the n-th instruction.
OrderedJson MemoryJson(const Program& train, const std::vector<TraceRow>& events, const LiveMemory& memory) {
  OrderedJson points = OrderedJson::array();
  const int last = LastMicroBatch(events);
  size_t shown = 0;
  int64_t before = -1;
  for (const TraceRow& r : events) {
    if (!IsShown(r.micro_batch, last)) continue;
    if (shown >= memory.temporaries.size()) break;
    const int64_t bytes = memory.temporaries[shown++].v;
    if (bytes == before && shown < memory.temporaries.size()) continue;
    before = bytes;
    points.push_back({ToNanoseconds(r.begin), bytes});
  }
  const MemoryByClass& m = train.peak;
  Bytes gradients{};  // except those among temporaries
  for (const Buffer& b : train.buffers) {
    const bool always = b.role == Role::kGradient && b.tier() == Tier::kDevice && !b.transient;
    if (always) gradients += AlignUp(b.type.bytes(), kAlignment);
  }
  return {{"classes",
           {{"weights", m.weights.v},
            {"adapters", m.adapters.v},
            {"optimizer states", m.optimizer.v},
            {"gradients", gradients.v},
            {"copies of weights", m.caches.v},
            {"inputs and outputs", m.inputs_outputs.v}}},
          {"temporaries", points},
          {"arena", train.arena_bytes.v}};
}

// Weights and adapters of one block of each kind, and those outside of blocks.
OrderedJson TensorsJson(const Program& train, const PlanFacts& facts) {
  const std::set<std::string_view> distinct(facts.distinct.begin(), facts.distinct.end());
  OrderedJson json = OrderedJson::array();
  for (const Buffer& b : train.buffers) {
    if (!distinct.contains(b.name)) continue;
    json.push_back({b.name, b.shard ? TensorType{b.type.dtype, b.shard->global}.ToString() : b.type.ToString(),
                    b.shard && !b.shard->split.empty() ? b.shard->split.ToString() : "whole", b.type.ToString(),
                    b.type.bytes().v, b.trainable});
  }
  return json;
}

// Contents of each tier at its peak, by class, and bytes that a step moves between tiers.
OrderedJson TiersJson(const Program& train) {
  OrderedJson tiers = OrderedJson::array();
  for (const auto& [tier, bytes, peak] : {std::tuple{Tier::kDevice, train.arena_bytes, &train.peak},
                                          std::tuple{Tier::kHost, train.host.bytes, &train.host.peak},
                                          std::tuple{Tier::kDisk, train.disk.bytes, &train.disk.peak}}) {
    if (bytes.v == 0) continue;
    tiers.push_back({ToString(tier), bytes.v, peak->weights.v + peak->adapters.v, peak->gradients.v, peak->optimizer.v,
                     peak->activations.v + peak->in_flight.v, peak->staged.v});
  }
  return tiers;
}
OrderedJson MovesJson(const Program& train) {
  OrderedJson moves = OrderedJson::array();
  for (const LinkTraffic& t : TrafficOfStep(train)) {
    moves.push_back({fmt::format("{} to {}", ToString(t.from), ToString(t.to)), t.bytes.v});
  }
  return moves;
}

// The considered ways to make the step fit, the chosen one first.
OrderedJson AlternativesJson(const std::vector<StepOption>& options) {
  OrderedJson json = OrderedJson::array();
  for (const StepOption& o : options) {
    json.push_back({o.choice.ToString(), o.tried, o.fits, o.step.v, o.device.v, o.host.v, o.disk.v, o.moved.v});
  }
  return json;
}

void Replace(std::string* text, std::string_view what, std::string_view with) {
  const size_t at = text->find(what);
  TEMPER_CHECK(at != std::string::npos) << what;
  text->replace(at, what.size(), with);
}

// "It fits: 5.10 GiB of 5.41 GiB of device memory, 24.0 GiB of host memory".
std::string VerdictText(const Forecast& f) {
  std::string text = fmt::format("{}: {} of {} of device memory", f.fits ? "It fits" : "It does not fit",
                                 ToString(f.bytes), ToString(f.limit));
  if (f.host_bytes.v > 0) text += fmt::format(", {} of host memory", ToString(f.host_bytes));
  if (f.disk_bytes.v > 0) text += fmt::format(", {} on disk", ToString(f.disk_bytes));
  return text;
}

}  // namespace

std::string PlanPage(const Program& train, const PlanFacts& facts, const PlanOnCluster& on,
                     const std::vector<TraceRow>& measured) {
  const Forecast& f = *on.forecast;
  const StepEstimate& s = f.simulation;
  OrderedJson data;
  const Cluster& c = *on.cluster;
  data["title"] =
      fmt::format("{}, {} in {}{} on {}", facts.model, facts.method == "lora" ? "LoRA" : "full training", facts.dtype,
                  facts.mesh.empty() ? "," : fmt::format(", {},", facts.mesh), c.shared ? c.device : c.name);
  data["fits"] = f.fits && facts.refusals.empty();
  data["verdict"] = VerdictText(f);
  if (!facts.refusals.empty()) {
    data["verdict"] = fmt::format("It would be refused {}. {}", facts.refusals.front(), VerdictText(f));
  }
  data["speed"] = fmt::format("{} per step, {} tokens/s, MFU {:.1f} %", ShortTime(s.step), Grouped(f.tokens_per_second),
                              100 * f.mfu);
  if (!f.fits) data["remedies"] = RemedyText(on.remedies, f);
  data["facts"] = {{"model", fmt::format("{} ({}, {}), {}, {:.2f} M trained", facts.architecture, facts.method,
                                         facts.dtype, ParametersText(facts.parameters, facts.active_parameters),
                                         static_cast<double>(facts.trainable_parameters) * 1e-6)},
                   {"mesh", facts.mesh.empty() ? "1 rank" : facts.mesh},
                   {"step", fmt::format("{} of {} x {} tokens, recompute {}",
                                        Counted(facts.micro_batches, "micro-batch", "micro-batches"),
                                        facts.rows * facts.data_ranks, facts.row_tokens, facts.recompute)},
                   {"device", c.device},
                   {"tiers", facts.tiers.empty() ? "everything on the device" : facts.tiers},
                   {"bound by", s.Bottleneck()}};
  data["limit"] = f.limit.v;
  data["parts"] = {{"arithmetic", s.arithmetic.v},     {"memory", s.memory.v},      {"launches", s.launches.v},
                   {"collectives", s.collectives.v},   {"waiting", s.waiting.v},    {"moves", s.moves.v},
                   {"waiting for moves", s.stalled.v}, {"other stages", s.stages.v}};
  data["step"] = s.step.v;
  data["queues"] = QueueNames();
  data["tiers"] = TiersJson(train);
  data["moves"] = MovesJson(train);
  data["groups"] = GroupsJson(s.events);
  data["planned"] = EventsJson(s.events);
  data["left_out"] = {{"planned", LeftOutJson(s.events)}, {"measured", LeftOutJson(measured)}};
  data["memory"] = MemoryJson(train, s.events, FindLiveMemory(train, 0));
  data["alternatives"] = AlternativesJson(facts.options);
  data["ops"] = OpsJson(s, measured);
  data["tensors"] = TensorsJson(train, facts);
  if (!measured.empty()) {
    double end = 0;
    for (const TraceRow& r : measured) end = std::max(end, r.begin.v + r.duration.v);
    data["measured"] = EventsJson(measured);
    data["measured_step"] = end;
  }
  std::string page(kPageTemplate);
  // The data is inside a script element and must not end it.
  std::string text = DumpJson(data, -1, /*ascii=*/true);
  for (size_t at = 0; (at = text.find('<', at)) != std::string::npos; at += 6) text.replace(at, 1, "\\u003c");
  Replace(&page, "\"DATA\"", text);
  return page;
}

}  // namespace temper
