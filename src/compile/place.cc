#include "compile/place.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/philox.h"

namespace temper {
namespace {

std::string BlockName(int block) {
  if (block == kBlockBefore) return "before";
  if (block == kBlockAfter) return "after";
  return fmt::format("block {}", block);
}

bool IsPersistent(const Graph& graph, ValueId id) {
  return graph.value(graph.Root(id)).role != Role::kActivation;
}

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

// Inputs and outputs of another size are another buffer (decoding steps take more or fewer tokens); everything else has
// one buffer per name.
std::string BufferKey(const Value& root) {
  const bool by_type = root.role == Role::kInput || root.role == Role::kOutput;
  return by_type ? root.name + " " + root.type.ToString() : root.name;
}

// The persistent region, in order of first appearance.
class BufferTable {
 public:
  Status Add(const Graph& graph) {
    for (ValueId id = 0; id < graph.num_values(); ++id) {
      if (!IsPersistent(graph, id)) continue;
      const Value& root = graph.value(graph.Root(id));
      const auto [it, fresh] = index_.try_emplace(BufferKey(root), buffers_.size());
      if (fresh) {
        buffers_.push_back({root.name, root.type, root.role, root.trainable, end_, root.shard});
        end_ = AlignUp(end_ + root.type.bytes(), kAlignment);
      }
      Buffer& known = buffers_[it->second];
      known.trainable |= root.trainable;
      if (!(known.type == root.type) || known.role != root.role) {
        return Corrupt(fmt::format("buffer {} is {} {} in one graph and {} {} in another", root.name,
                                   known.type.ToString(), ToString(known.role), root.type.ToString(),
                                   ToString(root.role)));
      }
    }
    return OkStatus();
  }
  size_t IndexOf(const Graph& graph, ValueId id) const { return index_.at(BufferKey(graph.value(graph.Root(id)))); }
  const Buffer& operator[](size_t index) const { return buffers_[index]; }
  Bytes end() const { return end_; }

  // Those that the graphs of `stages` use, in order.
  std::vector<Buffer> UsedBy(const std::vector<Stage>& stages) const {
    std::vector<bool> used(buffers_.size(), false);
    for (const Stage& stage : stages) {
      for (const Node& node : stage.graph->nodes()) {
        for (const auto* list : {&node.inputs, &node.outputs}) {
          for (ValueId id : *list) {
            if (IsPersistent(*stage.graph, id)) used[IndexOf(*stage.graph, id)] = true;
          }
        }
      }
    }
    std::vector<Buffer> buffers;
    for (size_t i = 0; i < used.size(); ++i) {
      if (used[i]) buffers.push_back(buffers_[i]);
    }
    return buffers;
  }

 private:
  std::vector<Buffer> buffers_;
  std::unordered_map<std::string, size_t> index_;
  Bytes end_;
};

// Addresses of the activations of one graph, relative to the temporary region, and what is alive at each node.
struct Layout {
  std::vector<Bytes> offset;  // per value; meaningful for roots of activations
  Bytes span;                 // bytes of the temporary region used
  Bytes workspace;            // largest of its nodes
  Bytes peak_live;            // activations plus workspace at `peak_node`
  Bytes peak_activations;
  size_t peak_node = 0;
};

// What a background node reads stays until the segment after its own has ended, so that it has that long; or until
// something waits for what it gives, where that is earlier. (Background nodes run in their order: one that takes what
// another gives waits for it, too.)
void ExtendBackground(const Graph& graph, std::vector<int>* end) {
  const auto& nodes = graph.nodes();
  const auto end_of = [&](size_t i, size_t limit) {
    for (size_t k = i + 1; k < limit; ++k) {
      for (ValueId id : nodes[k].inputs) {
        if (std::find(nodes[i].outputs.begin(), nodes[i].outputs.end(), id) != nodes[i].outputs.end()) return k;
      }
    }
    return limit;
  };
  const auto segment_end = [&](size_t i) {
    size_t e = i + 1;
    while (e < nodes.size() && nodes[e].phase == nodes[i].phase && nodes[e].block == nodes[i].block) ++e;
    return e;
  };
  for (size_t i = 0; i < nodes.size(); ++i) {
    if (!nodes[i].attributes.Flag("background")) continue;
    const size_t own = segment_end(i);
    const size_t next = own < nodes.size() ? segment_end(own) : own;
    const int end_of_node = static_cast<int>(end_of(i, next));
    for (ValueId id : nodes[i].inputs) {
      int& last = (*end)[graph.Root(id)];
      last = std::max(last, end_of_node - 1);
    }
  }
}

Layout LayOut(const Graph& graph, int threads) {
  Layout layout;
  layout.offset.assign(graph.num_values(), Bytes{});
  const int num_nodes = static_cast<int>(graph.nodes().size());
  std::vector<int> begin(graph.num_values(), -1), end(graph.num_values(), -1);
  for (int i = 0; i < num_nodes; ++i) {
    const Node& node = graph.nodes()[static_cast<size_t>(i)];
    for (const auto* list : {&node.inputs, &node.outputs}) {
      for (ValueId id : *list) {
        const ValueId root = graph.Root(id);
        if (begin[root] < 0) begin[root] = i;
        end[root] = i;
      }
    }
  }
  ExtendBackground(graph, &end);
  std::vector<Interval> intervals;
  std::vector<ValueId> owners;
  std::vector<int64_t> change(static_cast<size_t>(num_nodes) + 1, 0);
  for (ValueId id = 0; id < graph.num_values(); ++id) {
    if (graph.Root(id) != id || IsPersistent(graph, id) || begin[id] < 0) continue;
    const Bytes size = AlignUp(graph.value(id).type.bytes(), kAlignment);
    intervals.push_back({begin[id], end[id], size, {}});
    owners.push_back(id);
    change[static_cast<size_t>(begin[id])] += size.v;
    change[static_cast<size_t>(end[id]) + 1] -= size.v;
  }
  layout.span = PackIntervals(intervals);
  for (size_t k = 0; k < owners.size(); ++k) layout.offset[owners[k]] = intervals[k].offset;

  Bytes live{};
  for (size_t i = 0; i < graph.nodes().size(); ++i) {
    live += Bytes{change[i]};
    const Bytes workspace = AlignUp(WorkspaceOf(graph, graph.nodes()[i], threads), kAlignment);
    layout.workspace = std::max(layout.workspace, workspace);
    if (live + workspace > layout.peak_live) {
      layout.peak_live = live + workspace;
      layout.peak_activations = live;
      layout.peak_node = i;
    }
  }
  return layout;
}

// Cuts graphs into segments at changes of (phase, block), shares segments of equal structure, and binds them.
class SegmentWriter {
 public:
  SegmentWriter(Program* program, const BufferTable& table, Bytes temporaries)
      : program_(*program), table_(table), temporaries_(temporaries) {}

  // Binding indices that execute `graph` once.
  std::vector<int> Write(const Graph& graph, const Layout& layout) {
    std::vector<int> bindings;
    const auto& nodes = graph.nodes();
    for (size_t begin = 0; begin < nodes.size();) {
      size_t end = begin + 1;
      while (end < nodes.size() && nodes[end].phase == nodes[begin].phase && nodes[end].block == nodes[begin].block)
        ++end;
      bindings.push_back(WriteSegment(graph, layout, begin, end));
      begin = end;
    }
    return bindings;
  }

 private:
  int WriteSegment(const Graph& graph, const Layout& layout, size_t begin, size_t end) {
    const Node& first = graph.nodes()[begin];
    Segment segment{.phase = first.phase};
    Binding binding{.block = first.block};
    std::unordered_map<ValueId, int> operand_of;  // by root: values that share an address are one operand
    const auto operand = [&](ValueId id) {
      const ValueId root = graph.Root(id);
      const auto [it, fresh] = operand_of.try_emplace(root, static_cast<int>(segment.operands.size()));
      if (fresh) {
        segment.operands.push_back(graph.value(root).type);
        binding.offsets.push_back(IsPersistent(graph, root) ? table_[table_.IndexOf(graph, root)].offset
                                                            : temporaries_ + layout.offset[root]);
      }
      return it->second;
    };
    std::string structure;  // everything but the operands' addresses and names
    for (size_t i = begin; i < end; ++i) {
      const Node& node = graph.nodes()[i];
      Instruction instruction{.op = node.op, .attributes = node.attributes};
      for (ValueId id : node.inputs) instruction.inputs.push_back(operand(id));
      for (ValueId id : node.outputs) instruction.outputs.push_back(operand(id));
      structure += fmt::format("{}{}", ToString(node.op), node.attributes.ToString());
      for (int k : instruction.inputs) structure += fmt::format(" {}", k);
      for (int k : instruction.outputs) structure += fmt::format(">{}", k);
      segment.instructions.push_back(std::move(instruction));
      binding.rng_hashes.push_back(node.rng_name.empty() ? 0 : HashName(node.rng_name));
    }
    for (const TensorType& t : segment.operands) structure += t.ToString();
    structure += ToString(segment.phase);
    const auto [it, fresh] = known_.try_emplace(structure, static_cast<int>(program_.segments.size()));
    if (fresh) {
      segment.name = fmt::format("{} {}", ToString(segment.phase), BlockName(first.block));
      program_.segments.push_back(std::move(segment));
    }
    binding.segment = it->second;
    program_.bindings.push_back(std::move(binding));
    return static_cast<int>(program_.bindings.size()) - 1;
  }

  Program& program_;
  const BufferTable& table_;
  const Bytes temporaries_;
  std::unordered_map<std::string, int> known_;
};

}  // namespace

Result<std::vector<Program>> Place(std::span<const ProgramPlan> plans, int threads) {
  BufferTable table;
  std::map<const Graph*, Layout> layouts;
  Bytes span{}, workspace{};
  for (const ProgramPlan& plan : plans) {
    for (const Stage& stage : plan.stages) {
      TEMPER_RETURN_IF_ERROR(table.Add(*stage.graph));
      const auto [it, fresh] = layouts.try_emplace(stage.graph);
      if (fresh) it->second = LayOut(*stage.graph, threads);
      span = std::max(span, it->second.span);
      workspace = std::max(workspace, it->second.workspace);
    }
  }

  std::vector<Program> programs;
  for (const ProgramPlan& plan : plans) {
    Program program{.name = plan.name, .threads = threads};
    program.workspace_offset = table.end() + span;
    program.workspace_bytes = workspace;
    program.arena_bytes = program.workspace_offset + workspace;
    program.buffers = table.UsedBy(plan.stages);
    for (const Buffer& b : program.buffers) ClassOf(program.peak, b.role) += AlignUp(b.type.bytes(), kAlignment);
    SegmentWriter writer(&program, table, table.end());
    Bytes peak_live{};
    for (const Stage& stage : plan.stages) {
      const Layout& layout = layouts.at(stage.graph);
      if (layout.peak_live > peak_live) {
        peak_live = layout.peak_live;
        program.peak.activations = layout.peak_activations;
        program.peak.workspace = layout.peak_live - layout.peak_activations;
        const Node& node = stage.graph->nodes()[layout.peak_node];
        program.peak_instruction =
            fmt::format("{} {}: {}", ToString(node.phase), BlockName(node.block), ToString(node.op));
      }
      const std::vector<int> bindings = writer.Write(*stage.graph, layout);
      const bool per_micro_batch = stage.graph->nodes().empty() || stage.graph->nodes().front().phase != Phase::kUpdate;
      if (!per_micro_batch) program.schedule.push_back({.kind = Call::Kind::kBeforeUpdate});
      for (int m = stage.micro_batch_begin; m < stage.micro_batch_end; ++m) {
        if (per_micro_batch) program.schedule.push_back({.kind = Call::Kind::kLoadInputs, .micro_batch = m});
        for (int b : bindings) program.schedule.push_back({.binding = b, .micro_batch = m});
        if (per_micro_batch) program.schedule.push_back({.kind = Call::Kind::kStoreOutputs, .micro_batch = m});
      }
    }
    TEMPER_RETURN_IF_ERROR(Verify(program).WithContext("placing " + plan.name));
    programs.push_back(std::move(program));
  }
  return programs;
}

}  // namespace temper
