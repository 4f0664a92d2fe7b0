#include "compile/layout/addresses.h"

#include <fmt/core.h>

#include <algorithm>
#include <map>

#include "compile/layout/buffer_table.h"
#include "compile/layout/layout.h"
#include "compile/layout/segment_writer.h"
#include "compile/layout/step_layout.h"
#include "graph/update_rule.h"

namespace temper {
namespace {

Bytes& ClassOf(MemoryByClass& m, Role role) {
  switch (role) {
    case Role::kWeight:
    case Role::kConstant:
      return m.weights;
    case Role::kAdapter:
      return m.adapters;
    case Role::kGradient:
      return m.gradients;
    case Role::kOptimizerState:
      return m.optimizer;
    case Role::kCache:
      return m.caches;
    case Role::kInput:
    case Role::kOutput:
      return m.inputs_outputs;
    case Role::kActivation:
      break;
  }
  return m.activations;
}

constexpr Tier kTiers[] = {Tier::kDevice, Tier::kHost, Tier::kDisk};

// Combines the layouts of all graphs.
class Placer {
 public:
  Placer(std::span<const ProgramPlan> plans, int threads, const ArenaLimits& limits)
      : plans_(plans), threads_(threads), limits_(limits) {}

  Result<std::vector<Program>> Run() {
    TEMPER_RETURN_IF_ERROR(FindRoom());
    for (const ProgramPlan& plan : plans_) {
      // Nobody asks for others if the first exceeds its room: its sizes say so.
      if (&plan != &plans_.front() && ExceedsRoom()) {
        plans_ = plans_.first(1);
        break;
      }
      if (plan.before != nullptr) TEMPER_RETURN_IF_ERROR(Add(*plan.before, {}, &reach_));
      if (plan.pipeline) {
        BytesPerTier span = {};
        for (const PipelinedGraph* graph : GraphsOf(*plan.pipeline)) {
          TEMPER_RETURN_IF_ERROR(Add(graph->graph, graph->parts, &span));
        }
        const BytesPerTier kept = PlaceSlots(plan, {}).second;
        for (size_t t = 0; t < kNumTiers; ++t) reach_[t] = std::max(reach_[t], kept[t] + span[t]);
      }
      if (IsWholeStep(plan)) {
        TEMPER_RETURN_IF_ERROR(AddWholeStep(plan.name, *plan.stages[0].graph, *plan.stages[1].graph));
        continue;
      }
      for (const Stage& stage : plan.stages) TEMPER_RETURN_IF_ERROR(Add(*stage.graph, {}, &reach_, stage.layout));
    }
    if (!knows_room_) table_.GiveOffsets();
    std::vector<Program> programs;
    for (const ProgramPlan& plan : plans_) {
      programs.push_back(Write(plan));
      if (limits_.Hold(programs.back()))
        TEMPER_RETURN_IF_ERROR(Verify(programs.back()).WithContext("placing " + plan.name));
    }
    return programs;
  }

 private:
  // Each graph once.
  static std::vector<const PipelinedGraph*> GraphsOf(const PipelinedStep& step) {
    std::vector<const PipelinedGraph*> graphs = step.graphs;
    graphs.erase(std::unique(graphs.begin(), graphs.end()), graphs.end());
    return graphs;
  }

  // What persistent values leave of the limits to temporaries. Gradients of a whole step are among the temporaries. The
  // slots of a pipeline are beside them, and known only with the layout: then there is no limit here.
  Status FindRoom() {
    const bool is_limited = limits_.device < ArenaLimits().device || limits_.host < ArenaLimits().host;
    if (!is_limited) return OkStatus();
    BufferTable table;
    bool has_transient = false;
    for (const ProgramPlan& plan : plans_) {
      if (plan.pipeline) return OkStatus();
      if (plan.before != nullptr) TEMPER_RETURN_IF_ERROR(table.Add(*plan.before));
      const bool whole = IsWholeStep(plan);
      for (const Stage& stage : plan.stages) TEMPER_RETURN_IF_ERROR(table.Add(*stage.graph, whole ? plan.name : ""));
      if (!whole) continue;
      has_transient = true;
      const Graph& micro_batch = *plan.stages[0].graph;
      for (const ValueId id : GradientsOfStep(micro_batch, *plan.stages[1].graph)) {
        table.MakeTransient(table.IndexOf(micro_batch, id), {});
      }
    }
    table.GiveOffsets();
    for (const auto& [tier, limit] : {std::pair(Tier::kDevice, limits_.device), {Tier::kHost, limits_.host}}) {
      if (limit < ArenaLimits().device) room_[static_cast<size_t>(tier)] = limit - table.end(tier);
    }
    knows_room_ = !has_transient;  // transient buffers get their offsets with the layout
    if (knows_room_) table_ = std::move(table);
    return OkStatus();
  }
  bool ExceedsRoom() const {
    for (size_t t = 0; t < kNumTiers; ++t) {
      if (room_[t] && reach_[t] > *room_[t]) return true;
    }
    return false;
  }
  // For a graph beside others that span so much.
  PackingGoals GoalsBeside(const BytesPerTier& span) const {
    PackingGoals goals;
    for (size_t t = 0; t < kNumTiers; ++t) {
      goals[t].enough = knows_room_ ? std::max(span[t], room_[t].value_or(Bytes{})) : span[t];
      if (room_[t]) goals[t].most = *room_[t];
    }
    return goals;
  }

  Status Add(const Graph& graph, const std::vector<PipelinePart>& parts, BytesPerTier* span,
             const Layout* known = nullptr) {
    TEMPER_RETURN_IF_ERROR(table_.Add(graph));
    const auto [it, fresh] = layouts_.try_emplace(&graph);
    if (fresh) it->second = known != nullptr ? *known : LayOut(graph, parts, threads_, GoalsBeside(*span));
    for (size_t tier = 0; tier < kNumTiers; ++tier) {
      const TierLayout& layout = it->second.tiers[tier];
      (*span)[tier] = std::max((*span)[tier], layout.span);
    }
    return OkStatus();
  }

  static bool IsUpdate(const Graph& graph) {
    return !graph.nodes().empty() && graph.nodes().front().phase == Phase::kUpdate;
  }
  static bool Updates(const Segment& segment) {
    return std::any_of(segment.instructions.begin(), segment.instructions.end(),
                       [](const Instruction& i) { return UpdateRuleOf(i.op) != nullptr; });
  }
  // Whether the plan is one micro-batch and its update. REQUIRES: every other plan with gradients is one, too.
  static bool IsWholeStep(const ProgramPlan& plan) {
    const std::vector<Stage>& stages = plan.stages;
    return !plan.pipeline && plan.before == nullptr && stages.size() == 2 && !IsUpdate(*stages[0].graph) &&
           stages[0].micro_batch_end - stages[0].micro_batch_begin == 1 && IsUpdate(*stages[1].graph);
  }

  Status AddWholeStep(const std::string& name, const Graph& micro_batch, const Graph& update) {
    for (const Graph* graph : {&micro_batch, &update}) TEMPER_RETURN_IF_ERROR(table_.Add(*graph, name));
    StepLayout step = LayOutStep(micro_batch, update, threads_, GoalsBeside({}));
    for (const ValueId id : step.gradients) {
      table_.MakeTransient(table_.IndexOf(micro_batch, id), step.micro_batch.home[static_cast<size_t>(id)].offset);
    }
    for (size_t t = 0; t < kNumTiers; ++t) reach_[t] = std::max(reach_[t], step.micro_batch.tiers[t].span);
    layouts_.emplace(&micro_batch, std::move(step.micro_batch));
    layouts_.emplace(&update, std::move(step.update));
    return OkStatus();
  }

  // The slots of a pipeline, starting at `begin`, and their end: one per micro-batch in flight, each large enough for
  // any of the plan's graphs.
  std::pair<Regions, BytesPerTier> PlaceSlots(const ProgramPlan& plan, BytesPerTier begin) const {
    Regions regions;
    const std::vector<Slots>& counts = plan.pipeline->calls.slots;
    for (size_t t = 0; t < kNumTiers; ++t) {
      SlotSizes &first = regions.slots[t], &sizes = regions.slot_sizes[t];
      first.resize(counts.size());
      sizes.resize(counts.size());
      for (const PipelinedGraph* graph : GraphsOf(*plan.pipeline)) {
        const SlotSizes& slots = layouts_.at(&graph->graph).tiers[t].slots;
        for (size_t chunk = 0; chunk < slots.size(); ++chunk) {
          for (size_t kind = 0; kind < kNumSlotKinds; ++kind) {
            sizes[chunk][kind] = std::max(sizes[chunk][kind], slots[chunk][kind]);
          }
        }
      }
      for (size_t chunk = 0; chunk < counts.size(); ++chunk) {
        for (size_t kind = 0; kind < kNumSlotKinds; ++kind) {
          first[chunk][kind] = begin[t];
          begin[t] += sizes[chunk][kind] * counts[chunk][kind];
        }
      }
    }
    return {regions, begin};
  }

  Program Write(const ProgramPlan& plan) {
    Program program{.name = plan.name, .threads = threads_};
    program.arena_bytes = table_.end(Tier::kDevice) + reach_[0];
    for (const auto& [tier, far] : {std::pair(Tier::kHost, &program.host), std::pair(Tier::kDisk, &program.disk)}) {
      far->bytes = table_.end(tier) + reach_[static_cast<size_t>(tier)];
    }
    std::vector<const Graph*> graphs;
    if (plan.before != nullptr) graphs.push_back(plan.before);
    if (plan.pipeline) {
      for (const PipelinedGraph* graph : GraphsOf(*plan.pipeline)) graphs.push_back(&graph->graph);
    }
    for (const Stage& stage : plan.stages) graphs.push_back(stage.graph);
    program.buffers = table_.UsedBy(graphs);
    for (const Buffer& b : program.buffers) {
      TEMPER_CHECK(!b.transient || IsWholeStep(plan)) << b.name << " is used by another Program, too";
      if (b.transient) continue;  // NotePeak counts those alive at the peak
      ClassOf(PeakIn(b.tier(), &program), b.role) += AlignUp(b.type.bytes(), kAlignment);
    }
    NotePeaks(plan, &program);
    if (!limits_.Hold(program)) return program;
    SegmentWriter writer(&program, table_);
    const Regions whole = {.temporaries = EndsOfBuffers()};
    if (plan.before != nullptr) {
      const Graph& graph = *plan.before;
      for (const int b : writer.Write(graph, 0, graph.nodes().size(), layouts_.at(&graph), whole)) {
        program.schedule.push_back({.binding = b});
      }
    }
    if (plan.pipeline) WritePipeline(plan, &program, &writer);
    for (const Stage& stage : plan.stages) {
      const std::vector<int> bindings =
          writer.Write(*stage.graph, 0, stage.graph->nodes().size(), layouts_.at(stage.graph), whole);
      const bool per_micro_batch = !IsUpdate(*stage.graph);
      const auto first_update = std::find_if(bindings.begin(), bindings.end(), [&](int b) {
        const Binding& binding = program.bindings[static_cast<size_t>(b)];
        return Updates(program.segments[static_cast<size_t>(binding.segment)]);
      });
      for (int m = stage.micro_batch_begin; m < stage.micro_batch_end; ++m) {
        if (per_micro_batch) program.schedule.push_back({.kind = Call::Kind::kLoadInputs, .micro_batch = m});
        for (auto b = bindings.begin(); b != bindings.end(); ++b) {
          if (b == first_update) program.schedule.push_back({.kind = Call::Kind::kBeforeUpdate, .micro_batch = m});
          program.schedule.push_back({.binding = *b, .micro_batch = m});
        }
        if (per_micro_batch) program.schedule.push_back({.kind = Call::Kind::kStoreOutputs, .micro_batch = m});
      }
    }
    return program;
  }

  // The end of the buffers in each tier, where temporaries or slots begin.
  BytesPerTier EndsOfBuffers() const {
    BytesPerTier ends = {};
    for (const Tier tier : kTiers) ends[static_cast<size_t>(tier)] = BaseOf(tier) + table_.end(tier);
    return ends;
  }

  static MemoryByClass& PeakIn(Tier tier, Program* program) {
    return tier == Tier::kDevice ? program->peak : tier == Tier::kHost ? program->host.peak : program->disk.peak;
  }

  void NotePeaks(const ProgramPlan& plan, Program* program) const {
    BytesPerTier peak_live = {};
    if (plan.pipeline) {
      const BytesPerTier slots = PlaceSlots(plan, {}).second;
      for (const PipelinedGraph* graph : GraphsOf(*plan.pipeline)) {
        NotePeak(graph->graph, layouts_.at(&graph->graph), slots, program, &peak_live);
      }
    }
    for (const Stage& stage : plan.stages) {
      NotePeak(*stage.graph, layouts_.at(stage.graph), {}, program, &peak_live);
    }
  }

  // `kept`: bytes of slots, which exist for the whole run of a pipeline.
  static void NotePeak(const Graph& graph, const Layout& layout, const BytesPerTier& kept, Program* program,
                       BytesPerTier* peak_live) {
    for (const Tier tier : kTiers) {
      const TierLayout& here = layout.in(tier);
      const Bytes slots = kept[static_cast<size_t>(tier)];
      Bytes& most = (*peak_live)[static_cast<size_t>(tier)];
      if (here.peak_live + slots <= most) continue;
      most = here.peak_live + slots;
      MemoryByClass& peak = PeakIn(tier, program);
      peak.in_flight = slots;
      peak.activations = here.peak_activations;
      peak.staged = here.peak_staged;
      peak.gradients += here.peak_gradients;  // at most one layout of a Program has them
      peak.workspace = here.peak_live - here.peak_activations - here.peak_staged - here.peak_gradients;
      if (tier != Tier::kDevice) continue;
      const Node& node = graph.nodes()[here.peak_node];
      program->peak_instruction = PeakText(node);
    }
  }

  void WritePipeline(const ProgramPlan& plan, Program* program, SegmentWriter* writer) const {
    auto [regions, end] = PlaceSlots(plan, EndsOfBuffers());
    regions.temporaries = end;
    // By graph, part and slots: micro-batches with the same slots share a binding.
    std::map<std::tuple<const PipelinedGraph*, size_t, Slots>, std::vector<int>> bindings;
    int loaded = -1;
    for (const PipelineCall& call : plan.pipeline->calls.calls) {
      const PipelinedGraph* const graph = plan.pipeline->graphs[static_cast<size_t>(call.micro_batch)];
      const auto part = std::find_if(graph->parts.begin(), graph->parts.end(), [&](const PipelinePart& p) {
        return p.kind == call.part && p.chunk == call.chunk;
      });
      TEMPER_CHECK(part != graph->parts.end()) << "the schedule calls a part of chunk " << call.chunk;
      const auto [it, fresh] = bindings.try_emplace({graph, part - graph->parts.begin(), call.slots});
      if (fresh) {
        it->second =
            writer->Write(graph->graph, part->begin, part->end, layouts_.at(&graph->graph), regions, call.slots);
      }
      if (call.micro_batch != loaded && Touches(*graph, *part, Role::kInput)) {
        loaded = call.micro_batch;
        program->schedule.push_back({.kind = Call::Kind::kLoadInputs, .micro_batch = loaded});
      }
      for (int b : it->second) program->schedule.push_back({.binding = b, .micro_batch = call.micro_batch});
      if (Touches(*graph, *part, Role::kOutput)) {
        program->schedule.push_back({.kind = Call::Kind::kStoreOutputs, .micro_batch = call.micro_batch});
      }
    }
  }

  static bool Touches(const PipelinedGraph& graph, const PipelinePart& part, Role role) {
    for (size_t i = part.begin; i < part.end; ++i) {
      const Node& node = graph.graph.nodes()[i];
      for (const auto* list : {&node.inputs, &node.outputs}) {
        for (ValueId id : *list) {
          if (graph.graph.value(graph.graph.Root(id)).role == role) return true;
        }
      }
    }
    return false;
  }

  std::span<const ProgramPlan> plans_;
  const int threads_;
  const ArenaLimits limits_;
  BufferTable table_;
  std::map<const Graph*, Layout> layouts_;
  bool knows_room_ = false;                           // what fits into it is enough; the table has all offsets
  std::array<std::optional<Bytes>, kNumTiers> room_;  // for temporaries; nullopt: no limit is known
  BytesPerTier reach_ = {};                           // end of slots and temporaries over all Programs
};

}  // namespace

std::string PeakText(const Node& node) {
  return fmt::format("{} {}: {}", ToString(node.phase), NameOfBlock(node.block), ToString(node.op));
}

Result<std::vector<Program>> AssignAddresses(std::span<const ProgramPlan> plans, int threads,
                                             const ArenaLimits& limits) {
  return Placer(plans, threads, limits).Run();
}

}  // namespace temper
