#include "plan/report.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <nlohmann/json.hpp>
#include <vector>

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
          {"inputs_outputs", "inputs and outputs", m.inputs_outputs}};
}

// How many times each segment runs in a step.
std::vector<int64_t> RunsOf(const Program& program) {
  std::vector<int64_t> runs(program.segments.size(), 0);
  for (const Call& call : program.schedule) {
    if (call.kind == Call::Kind::kRun)
      ++runs[static_cast<size_t>(program.bindings[static_cast<size_t>(call.binding)].segment)];
  }
  return runs;
}

}  // namespace

std::string PipelineFacts::ToString() const {
  return fmt::format("{}: {} stages, runs of {} blocks, {} micro-batches, bubble {:.1f} %", schedule, stages,
                     fmt::join(layers, ", "), micro_batches, 100 * bubble);
}

std::string PlanText(const Program& train, const PlanFacts& f) {
  std::string text = fmt::format("model       {} ({}), {:.2f} M parameters, {:.2f} M trained ({}, {})\n", f.model,
                                 f.architecture, static_cast<double>(f.parameters) * 1e-6,
                                 static_cast<double>(f.trainable_parameters) * 1e-6, f.method, f.dtype);
  text += fmt::format("step        {} micro-batches of {} x {} tokens = {} tokens; recompute {}\n", f.micro_batches,
                      f.rows * f.data_ranks, f.row_tokens, f.micro_batches * f.rows * f.data_ranks * f.row_tokens,
                      f.recompute);
  const Cost cost = CostOfStep(train);
  if (f.pipeline) {
    text += fmt::format("pipeline    {}; {} in flight on this stage\n", f.pipeline->ToString(), f.pipeline->in_flight);
  }
  if (f.ranks > 1) {
    text += fmt::format("mesh        {}: {} ranks, {} with rows of their own; what follows is the first rank's\n",
                        f.mesh, f.ranks, f.data_ranks);
    text += fmt::format("traffic     {} sent to other ranks per step\n", ToString(cost.sent));
  }
  text += fmt::format("arithmetic  {} per step, of which the model needs {}\n", ToString(cost.flops),
                      ToString(Flops{f.model_flops.v / static_cast<double>(f.ranks)}));
  text += fmt::format("memory      at its peak, {}:\n", train.peak_instruction);
  for (const ClassRow& row : RowsOf(train.peak)) {
    if (row.bytes.v > 0) text += fmt::format("  {:<20} {:>12}\n", row.label, ToString(row.bytes));
  }
  const Bytes gaps = train.arena_bytes - train.peak.total();
  text += fmt::format("  {:<20} {:>12}\n  {:<20} {:>12}\n", "packing", ToString(gaps), "arena",
                      ToString(train.arena_bytes));
  const std::vector<int64_t> runs = RunsOf(train);
  text += fmt::format("segments    {} compiled, {} calls per step\n", train.segments.size(), train.schedule.size());
  for (size_t i = 0; i < train.segments.size(); ++i) {
    text += fmt::format("  {:<28} {:>4} instructions x {}\n", train.segments[i].name,
                        train.segments[i].instructions.size(), runs[i]);
  }
  if (f.available.v > 0) {
    const bool fits = train.arena_bytes <= f.available;
    text += fmt::format("this machine has {} available: the run {}\n", ToString(f.available),
                        fits ? "fits" : "does not fit");
  }
  return text;
}

std::string PlanJson(const Program& train, const PlanFacts& f) {
  nlohmann::ordered_json json;
  json["model"] = f.model;
  json["architecture"] = f.architecture;
  json["method"] = f.method;
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
  json["parameters"] = f.parameters;
  json["trainable_parameters"] = f.trainable_parameters;
  json["tokens_per_step"] = f.micro_batches * f.rows * f.data_ranks * f.row_tokens;
  json["flops"] = CostOfStep(train).flops.v;
  json["model_flops"] = f.model_flops.v;
  for (const ClassRow& row : RowsOf(train.peak)) json["bytes"]["device"][row.key] = row.bytes.v;
  json["bytes"]["device"]["packing"] = (train.arena_bytes - train.peak.total()).v;
  json["bytes"]["device"]["total"] = train.arena_bytes.v;
  json["peak_instruction"] = train.peak_instruction;
  if (f.available.v > 0) json["fits"] = train.arena_bytes <= f.available;
  const std::vector<int64_t> runs = RunsOf(train);
  for (size_t i = 0; i < train.segments.size(); ++i) {
    json["segments"].push_back(
        {{"name", train.segments[i].name}, {"instructions", train.segments[i].instructions.size()}, {"runs", runs[i]}});
  }
  json["program_hash"] = fmt::format("{:016x}", ProgramHash(train));
  return json.dump(2) + "\n";
}

}  // namespace temper
