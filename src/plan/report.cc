#include "plan/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <utility>
#include <vector>

#include "base/quantity.h"
#include "format/json.h"
#include "graph/named_ops.h"
#include "model/model.h"
#include "model/teacher.h"
#include "plan/expert_imbalance.h"
#include "plan/live_memory.h"
#include "plan/planner.h"
#include "plan/remedies.h"

namespace temper {
namespace {

struct ClassRow {
  const char* key;
  const char* label;
  Bytes bytes;
};

std::vector<ClassRow> RowsOf(const MemoryByClass& m) {
  return {{"weights", "weights", m.weights},
          {"adapters", "adapters", m.adapters},
          {"gradients", "gradients", m.gradients},
          {"optimizer", "optimizer states", m.optimizer},
          {"activations", "activations", m.activations},
          {"in_flight", "in flight", m.in_flight},
          {"workspace", "kernel workspace", m.workspace},
          {"inputs_outputs", "inputs and outputs", m.inputs_outputs},
          {"caches", "copies of weights", m.caches},
          {"staged", "copies from other tiers", m.staged}};
}

// The weights of the model that is learned from, in all tiers.
Bytes TeacherBytes(const Program& train) {
  Bytes bytes;
  for (const Buffer& b : train.buffers) {
    if (b.role == Role::kWeight && b.name.starts_with(kTeacherPrefix)) bytes += b.type.bytes();
  }
  return bytes;
}

// How often each segment runs in a step.
std::vector<int64_t> RunsOf(const Program& program) {
  std::vector<int64_t> runs(program.segments.size(), 0);
  for (const Call& call : program.schedule) {
    if (call.kind == Call::Kind::kRun)
      ++runs[static_cast<size_t>(program.bindings[static_cast<size_t>(call.binding)].segment)];
  }
  return runs;
}

constexpr size_t kLargestTensors = 6;

std::string LargestText(const Program& train) {
  std::string text = "  the largest tensors:\n";
  for (const LiveTensor& t : FindLiveMemory(train, kLargestTensors).at_fullest) {
    text += fmt::format("    {:>12}  {}{}{}\n", ToString(t.bytes), t.what, t.type.empty() ? "" : " ", t.type);
  }
  return text;
}

// The host's memory and the disk, if the run uses them. Values on the disk pass through buffers at the host.
struct FarTier {
  Tier tier;
  Bytes total;
  std::vector<ClassRow> rows;  // sum to the total
};

std::vector<FarTier> FarTiersOf(const Program& train, const PlanFacts& f) {
  std::vector<FarTier> tiers;
  for (const auto& [tier, far] : {std::pair{Tier::kHost, &train.host}, std::pair{Tier::kDisk, &train.disk}}) {
    const Bytes buffers = tier == Tier::kHost ? f.transfer_buffers : Bytes{};
    if ((far->bytes + buffers).v == 0) continue;
    FarTier& row = tiers.emplace_back(FarTier{tier, far->bytes + buffers, RowsOf(far->peak)});
    row.rows.push_back({"transfer_buffers", "transfer buffers", buffers});
    row.rows.push_back({"packing", "packing", far->bytes - far->peak.total()});
  }
  return tiers;
}

// Contents of the far tiers, and the moves of a step.
std::string FarText(const Program& train, const PlanFacts& f) {
  std::string text;
  for (const FarTier& far : FarTiersOf(train, f)) {
    text += fmt::format("{:<12}at its peak:\n", ToString(far.tier));
    for (const ClassRow& row : far.rows) {
      if (row.bytes.v > 0) text += fmt::format("  {:<20} {:>12}\n", row.label, ToString(row.bytes));
    }
    text += fmt::format("  {:<20} {:>12}\n", "total", ToString(far.total));
  }
  for (const LinkTraffic& t : TrafficOfStep(train)) {
    text += fmt::format("moves       {} from {} to {} per step\n", ToString(t.bytes), ToString(t.from), ToString(t.to));
  }
  return text;
}

// `step`: the forecast of the step, in which experts are used alike, or nullptr.
std::string ImbalanceText(const ExpertImbalance& e, const StepEstimate* step) {
  std::string text = fmt::format(
      "experts     {} of {} for each token: {:.0f} rows each of a micro-batch's {} tokens if they are used alike, {} "
      "at "
      "most; memory is planned for that\n",
      e.active, e.experts, e.alike(), e.tokens, e.tokens);
  if (e.own == e.experts) return text;
  text += fmt::format("  a rank has {}: it computes up to {:.1f} times its share, while others wait", e.own, e.worst());
  if (step != nullptr) {
    Seconds alike;
    for (const OpTotal& op : step->ops) {
      if (op.op == Op::kGroupedLinear || op.op == Op::kGroupedLinearDx || op.op == Op::kGroupedLinearDw) {
        alike += op.seconds;
      }
    }
    text += fmt::format(": {} per step instead of {}", ShortTime({alike.v * e.worst()}), ShortTime(alike));
  }
  return text + "\n";
}

// "294 steps (98 per epoch), 260,000 tokens: 1.2 h, ...".
std::string LengthText(const RunLength& run, const Forecast* forecast) {
  std::string text = fmt::format("run         {}", Counted(run.steps, "step"));
  if (run.steps_per_epoch > 0) text += fmt::format(" ({} per epoch)", run.steps_per_epoch);
  text += fmt::format(", {} tokens", Grouped(run.tokens));
  if (forecast == nullptr) return text + "\n";
  const Seconds all{static_cast<double>(run.steps) * forecast->simulation.step.v};
  return text + fmt::format(": {}, without evaluations and saves\n", ToString(all));
}

// Of memory. Where the run would be refused for something else, the report's last lines say so.
std::string_view Verdict(bool fits, const PlanFacts& facts) {
  if (!fits) return "the run does not fit";
  return facts.refusals.empty() ? "the run fits" : "enough memory";
}

std::string SpeedText(const PlanOnCluster& on, const PlanFacts& facts) {
  const Cluster& c = *on.cluster;
  const Forecast& f = *on.forecast;
  const StepEstimate& s = f.simulation;
  const auto share = [&](Seconds part) { return 100 * part.v / s.step.v; };
  std::string text = fmt::format("speed       {} ({}): {} per step, {:.1f} tokens/s, MFU {:.2f} %\n", c.name, c.device,
                                 ShortTime(s.step), f.tokens_per_second, 100 * f.mfu);
  if (!c.other_load.empty()) {
    text += fmt::format(
        "  while it was measured{}, {}: seconds may be wrong; `temper doctor --calibrate` on an idle machine measures "
        "again\n",
        c.date.empty() ? "" : fmt::format(" ({})", c.date), c.other_load);
  }
  text += fmt::format(
      "  bound by {}: arithmetic {:.1f} %, memory {:.1f} %, launches {:.1f} %, collectives {:.1f} %, waiting for them "
      "{:.1f} %, moves and waiting for them {:.1f} %\n",
      s.Bottleneck(), share(s.arithmetic), share(s.memory), share(s.launches), share(s.collectives), share(s.waiting),
      share(s.moves + s.stalled));
  // A quarter of the step: the figure from which another mesh is likely to be worth a search of seconds.
  if (share(s.collectives + s.waiting) > 25) text += "  --search throughput looks for a mesh and rows that wait less\n";
  if (s.stages.v > 0) {
    text += fmt::format("  the first stage waits for others {:.1f} % of the step, all stages on average {:.1f} %\n",
                        share(s.stages), 100 * f.bubble);
  }
  if (s.hidden.v > 0) text += fmt::format("  collectives and moves hidden beside kernels: {}\n", ShortTime(s.hidden));
  constexpr size_t kLongest = 6;
  for (size_t i = 0; i < std::min(kLongest, s.ops.size()); ++i) {
    text += fmt::format("  {:<32} {:>6} runs {:>12} {:>5.1f} %\n",
                        fmt::format("{} {}", ToString(s.ops[i].phase), ToString(s.ops[i].op)), s.ops[i].runs,
                        ShortTime(s.ops[i].seconds), share(s.ops[i].seconds));
  }
  if (s.sent_within_host.v + s.sent_between_hosts.v > 0) {
    text += fmt::format("links       a rank sends {} within its host, {} to other hosts\n",
                        ToString(s.sent_within_host), ToString(s.sent_between_hosts));
  }
  if (f.price_per_million_tokens > 0) {
    text += fmt::format("price       {:.2f} {} per million tokens, at {:.2f} per device and hour\n",
                        f.price_per_million_tokens, c.currency, c.price_per_device_hour);
  }
  if (f.fits && s.step >= kSlowStep) text += FasterText(on.faster, f);
  text += fmt::format("fit         {} of {} per device", ToString(f.bytes), ToString(f.limit));
  if (f.host_bytes.v > 0) {
    text += c.shared ? fmt::format(" plus {} of the host tier in the same memory", ToString(f.host_bytes))
                     : fmt::format(", {} of {} of host memory", ToString(f.host_bytes), ToString(f.host_limit));
  }
  if (f.disk_bytes.v > 0) text += fmt::format(", {} on disk", ToString(f.disk_bytes));
  text += fmt::format(": {}\n", Verdict(f.fits, facts));
  if (!f.fits) text += RemedyText(on.remedies, f);
  return text;
}

nlohmann::ordered_json SpeedJson(const PlanOnCluster& on) {
  const Forecast& f = *on.forecast;
  const StepEstimate& s = f.simulation;
  nlohmann::ordered_json json;
  json["cluster"] = on.cluster->name;
  if (!on.cluster->other_load.empty()) json["other_load"] = on.cluster->other_load;
  json["device"] = on.cluster->device;
  json["device_limit_bytes"] = f.limit.v;
  json["host_limit_bytes"] = f.host_limit.v;
  json["step_seconds"] = s.step.v;
  json["tokens_per_second"] = f.tokens_per_second;
  json["mfu"] = f.mfu;
  json["bottleneck"] = s.Bottleneck();
  if (f.bubble > 0) json["bubble"] = f.bubble;
  json["seconds"] = {{"arithmetic", s.arithmetic.v},   {"memory", s.memory.v},   {"launches", s.launches.v},
                     {"collectives", s.collectives.v}, {"waiting", s.waiting.v}, {"moves", s.moves.v},
                     {"stalled", s.stalled.v},         {"stages", s.stages.v},   {"hidden", s.hidden.v}};
  json["sent_bytes_by_link"] = {{"within_host", s.sent_within_host.v}, {"between_hosts", s.sent_between_hosts.v}};
  if (f.price_per_million_tokens > 0) {
    json["price_per_million_tokens"] = f.price_per_million_tokens;
    json["currency"] = on.cluster->currency;
  }
  for (const OpTotal& op : s.ops) {
    json["ops"].push_back(
        {{"op", ToString(op.op)}, {"phase", ToString(op.phase)}, {"runs", op.runs}, {"seconds", op.seconds.v}});
  }
  for (const auto& [name, remedies] : {std::pair("remedies", &on.remedies), {"faster", &on.faster}}) {
    for (const Remedy& r : *remedies) {
      json[name].push_back({{"settings", r.settings},
                            {"bytes", r.bytes.v},
                            {"fits", r.fits},
                            {"compiled", r.compiled},
                            {"step_seconds", r.step.v},
                            {"tokens_per_second", r.tokens_per_second},
                            {"price", r.price}});
    }
  }
  return json;
}

}  // namespace

std::string ShortTime(Seconds s) {
  return s.v < 1 ? fmt::format("{:.2f} ms", s.v * 1e3) : ToString(s);
}

std::string PlanText(const Program& train, const PlanFacts& f, const PlanOnCluster& on) {
  std::string text = fmt::format("model       {} ({}), {}, {:.2f} M trained ({}, {})\n", f.model, f.architecture,
                                 ParametersText(f.parameters, f.active_parameters),
                                 static_cast<double>(f.trainable_parameters) * 1e-6, f.method, f.dtype);
  if (!f.teacher.empty()) {
    text += fmt::format("teacher     {}, frozen: {} of the weights\n", f.teacher, ToString(TeacherBytes(train)));
  }
  text += fmt::format("step        {} of {} x {} tokens = {} tokens; recompute {}\n",
                      Counted(f.micro_batches, "micro-batch", "micro-batches"), f.rows * f.data_ranks, f.row_tokens,
                      f.micro_batches * f.rows * f.data_ranks * f.row_tokens, f.recompute);
  if (f.fill) {
    text += fmt::format(
        "rows        {:.1f} % of their places hold tokens, {} per step; attention within documents computes {:.1f} % "
        "of the pairs of a row\n",
        100 * f.fill->tokens, f.tokens, 100 * f.fill->attended);
  }
  if (!f.lengths.train.empty()) {
    text += fmt::format(
        "lengths     {}, {}: a {} runs in the shortest that holds its rows; planned is a step of the longest\n",
        f.row_tokens, fmt::join(f.lengths.train, ", "), f.lengths.per_step ? "step" : "micro-batch");
  }
  if (!f.lengths.why_not.empty()) {
    text += fmt::format("lengths     all rows keep {} tokens: {}\n", f.row_tokens, f.lengths.why_not);
  }
  const Cost cost = CostOfStep(train);
  if (f.pipeline) {
    text += fmt::format("pipeline    {}; {} in flight on this stage\n", f.pipeline->ToString(), f.pipeline->in_flight);
  }
  if (f.ranks > 1) {
    text += fmt::format("mesh        {}: {} ranks, {} with rows of {} own; all figures below are for the first rank\n",
                        f.mesh, f.ranks, f.data_ranks, f.data_ranks == 1 ? "its" : "their");
    if (!f.mesh_note.empty()) text += fmt::format("  {}\n", f.mesh_note);
    text += fmt::format("traffic     {} sent to other ranks per step\n", ToString(cost.sent));
    text += DescribeDecisions(f.decisions);
  }
  text += fmt::format("arithmetic  {} per step, of which the model needs {}\n", ToString(cost.flops),
                      ToString(Flops{f.model_flops.v / static_cast<double>(f.ranks)}));
  if (const auto experts = FindImbalance(train)) {
    text += ImbalanceText(*experts, on.forecast != nullptr ? &on.forecast->simulation : nullptr);
  }
  text += fmt::format("memory      at its peak, {}:\n", train.peak_instruction);
  for (const ClassRow& row : RowsOf(train.peak)) {
    if (row.bytes.v > 0) text += fmt::format("  {:<20} {:>12}\n", row.label, ToString(row.bytes));
  }
  const Bytes gaps = train.arena_bytes - train.peak.total();
  text += fmt::format("  {:<20} {:>12}\n  {:<20} {:>12}\n", "packing", ToString(gaps), "arena",
                      ToString(train.arena_bytes));
  if (!f.tiers.empty()) text += fmt::format("tiers       {}\n", f.tiers);
  for (const std::string& line : OptionLines(f.options)) text += fmt::format("  {}\n", line);
  if (f.ranks > 1 && !f.options.empty()) text += "  (these steps without traffic to other ranks)\n";
  if (!f.rates.empty()) text += fmt::format("rates       {}\n", f.rates);
  text += FarText(train, f);
  text += LargestText(train);
  const std::vector<int64_t> runs = RunsOf(train);
  text += fmt::format("segments    {} compiled, {} calls per step\n", train.segments.size(), train.schedule.size());
  for (size_t i = 0; i < train.segments.size(); ++i) {
    text += fmt::format("  {:<28} {:>4} instructions x {}\n", train.segments[i].name,
                        train.segments[i].instructions.size(), runs[i]);
  }
  if (f.length) text += LengthText(*f.length, on.forecast);
  if (on.forecast != nullptr) {
    text += SpeedText(on, f);
  } else if (f.available.v > 0) {
    const bool fits = train.arena_bytes + train.host.bytes + f.transfer_buffers <= f.available;
    text += fmt::format("this machine has {} available: {}\n", ToString(f.available), Verdict(fits, f));
  }
  for (const std::string& refusal : f.refusals) text += fmt::format("the run would be refused {}\n", refusal);
  return text;
}

std::string PlanJson(const Program& train, const PlanFacts& f, const PlanOnCluster& on) {
  nlohmann::ordered_json json;
  json["model"] = f.model;
  json["architecture"] = f.architecture;
  json["method"] = f.method;
  if (!f.teacher.empty()) json["teacher"] = {{"model", f.teacher}, {"weight_bytes", TeacherBytes(train).v}};
  json["dtype"] = f.dtype;
  json["recompute"] = f.recompute;
  json["mesh"] = f.mesh;
  json["ranks"] = f.ranks;
  if (f.pipeline) {
    json["pipeline"] = {{"schedule", f.pipeline->schedule},
                        {"stages", f.pipeline->stages},
                        {"layers", f.pipeline->layers},
                        {"bubble", f.pipeline->bubble},
                        {"in_flight", f.pipeline->in_flight}};
  }
  json["sent_bytes"] = CostOfStep(train).sent.v;
  for (const Decision& d : f.decisions) {
    json["decisions"].push_back({{"what", d.what},
                                 {"chosen", d.chosen},
                                 {"rejected", d.rejected},
                                 {"reason", d.reason},
                                 {"sent_bytes", d.sent.v},
                                 {"sent_bytes_otherwise", d.sent_otherwise.v}});
  }
  json["parameters"] = f.parameters;
  json["active_parameters"] = f.active_parameters;
  json["trainable_parameters"] = f.trainable_parameters;
  if (const auto e = FindImbalance(train)) {
    json["experts"] = {{"in_all", e->experts},     {"of_rank", e->own},      {"of_token", e->active},
                       {"rows_alike", e->alike()}, {"rows_most", e->tokens}, {"worst_share", e->worst()}};
  }
  json["tokens_per_step"] = f.tokens;
  if (f.fill) json["rows"] = {{"tokens", f.fill->tokens}, {"attended", f.fill->attended}};
  if (!f.lengths.train.empty()) json["shorter_rows"] = f.lengths.train;
  if (f.length) {
    json["run"] = {{"steps", f.length->steps}, {"tokens", f.length->tokens}};
    if (f.length->steps_per_epoch > 0) json["run"]["steps_per_epoch"] = f.length->steps_per_epoch;
    if (on.forecast != nullptr) {
      json["run"]["seconds"] = static_cast<double>(f.length->steps) * on.forecast->simulation.step.v;
    }
  }
  if (!f.refusals.empty()) json["refused"] = f.refusals;
  json["flops"] = CostOfStep(train).flops.v;
  json["model_flops"] = f.model_flops.v;
  for (const ClassRow& row : RowsOf(train.peak)) json["bytes"]["device"][row.key] = row.bytes.v;
  json["bytes"]["device"]["packing"] = (train.arena_bytes - train.peak.total()).v;
  json["bytes"]["device"]["total"] = train.arena_bytes.v;
  for (const FarTier& far : FarTiersOf(train, f)) {
    auto& bytes = json["bytes"][std::string(ToString(far.tier))];
    for (const ClassRow& row : far.rows) bytes[row.key] = row.bytes.v;
    bytes["total"] = far.total.v;
  }
  for (const LinkTraffic& t : TrafficOfStep(train)) {
    json["bytes_moved"].push_back({{"from", ToString(t.from)}, {"to", ToString(t.to)}, {"bytes", t.bytes.v}});
  }
  if (!f.tiers.empty()) json["placement"] = f.tiers;
  if (!f.rates.empty()) json["rates"] = f.rates;
  for (const StepOption& o : f.options) {
    nlohmann::ordered_json option = {{"recompute", o.choice.ToString()}, {"tried", o.tried}, {"fits", o.fits}};
    option["chosen"] = json["alternatives"].empty();
    // What options are compared by: this rank's kernels, moves and waits for them, not collectives nor sends, which all
    // have. For options that were not tried: kernels alone.
    if (o.fits || o.step.v > 0) option[o.fits ? "seconds_without_traffic" : "compute_seconds"] = o.step.v;
    if (o.fits) {
      option["bytes"] = {{"device", o.device.v}, {"host", o.host.v}, {"disk", o.disk.v}};
      option["bytes_moved"] = o.moved.v;
    }
    json["alternatives"].push_back(std::move(option));
  }
  json["peak_instruction"] = train.peak_instruction;
  for (const LiveTensor& t : FindLiveMemory(train, kLargestTensors).at_fullest) {
    json["largest"].push_back({{"what", t.what}, {"type", t.type}, {"bytes", t.bytes.v}});
  }
  if (on.forecast != nullptr) {
    json["fits"] = on.forecast->fits;
    json.update(SpeedJson(on));
  } else if (f.available.v > 0) {
    json["fits"] = train.arena_bytes + train.host.bytes + f.transfer_buffers <= f.available;
  }
  const std::vector<int64_t> runs = RunsOf(train);
  for (size_t i = 0; i < train.segments.size(); ++i) {
    json["segments"].push_back(
        {{"name", train.segments[i].name}, {"instructions", train.segments[i].instructions.size()}, {"runs", runs[i]}});
  }
  json["program_hash"] =
      fmt::format("{:016x}", f.hashes_without_limits ? f.hashes_without_limits->at(train.name) : ProgramHash(train));
  return DumpJson(json, 2) + "\n";
}

}  // namespace temper
