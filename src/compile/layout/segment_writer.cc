#include "compile/layout/segment_writer.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/philox.h"

namespace temper {

Bytes Regions::At(const Home& home, Tier tier, const Slots& slots_of_call) const {
  const auto t = static_cast<size_t>(tier);
  if (home.chunk < 0) return temporaries[t] + home.offset;
  const auto chunk = static_cast<size_t>(home.chunk), kind = static_cast<size_t>(home.kind);
  return slots[t][chunk][kind] + slot_sizes[t][chunk][kind] * slots_of_call[kind] + home.offset;
}

std::vector<int> SegmentWriter::Write(const Graph& graph, size_t begin, size_t end, const Layout& layout,
                                      const Regions& regions, const Slots& slots) {
  std::vector<int> bindings;
  const auto& nodes = graph.nodes();
  while (begin < end) {
    size_t next = begin + 1;
    while (next < end && nodes[next].phase == nodes[begin].phase && nodes[next].block == nodes[begin].block) ++next;
    bindings.push_back(WriteSegment(graph, begin, next, layout, regions, slots));
    begin = next;
  }
  return bindings;
}

int SegmentWriter::WriteSegment(const Graph& graph, size_t begin, size_t end, const Layout& layout,
                                const Regions& regions, const Slots& slots) {
  const auto offset_of = [&](ValueId root) {
    return graph.value(root).role != Role::kActivation
               ? table_[table_.IndexOf(graph, root)].offset
               : regions.At(layout.home[static_cast<size_t>(root)], graph.value(root).tier, slots);
  };
  const std::vector<ValueId>& all_roots = table_.RootsIn(graph);
  const Node& first = graph.nodes()[begin];
  Segment segment{.phase = first.phase};
  Binding binding{.block = first.block};
  // Values that share an address are one operand.
  operand_of_.resize(std::max(operand_of_.size(), static_cast<size_t>(graph.num_values())), -1);
  std::vector<ValueId> roots;
  const auto operand = [&](ValueId id) {
    const ValueId root = all_roots[static_cast<size_t>(id)];
    int& index = operand_of_[static_cast<size_t>(root)];
    if (index < 0) {
      index = static_cast<int>(roots.size());
      roots.push_back(root);
      segment.operands.push_back(graph.value(root).type);
      binding.offsets.push_back(offset_of(root));
    }
    return index;
  };
  for (size_t i = begin; i < end; ++i) {
    const Node& node = graph.nodes()[i];
    Instruction instruction{.op = node.op, .attributes = node.attributes};
    for (ValueId id : node.inputs) instruction.inputs.push_back(operand(id));
    for (ValueId id : node.outputs) instruction.outputs.push_back(operand(id));
    segment.instructions.push_back(std::move(instruction));
    binding.rng_hashes.push_back(node.rng_name.empty() ? 0 : HashName(node.rng_name));
    const std::optional<Bytes> scratch = layout.scratch[i];
    binding.scratch.push_back(scratch ? regions.At({.offset = *scratch}, TierOf(graph, node), slots) : Bytes{});
  }
  for (const ValueId root : roots) operand_of_[static_cast<size_t>(root)] = -1;
  std::vector<Tier> tiers;
  for (const Bytes address : binding.offsets) tiers.push_back(TierOf(address));
  binding.segment = FindEqual(segment, tiers);
  if (binding.segment == static_cast<int>(program_.segments.size())) {
    segment.name = fmt::format("{} {}", ToString(segment.phase), NameOfBlock(first.block));
    program_.segments.push_back(std::move(segment));
    tiers_.push_back(std::move(tiers));
  }
  program_.bindings.push_back(std::move(binding));
  return static_cast<int>(program_.bindings.size()) - 1;
}

int SegmentWriter::FindEqual(const Segment& segment, const std::vector<Tier>& tiers) const {
  const auto same = [](const Instruction& a, const Instruction& b) {
    return a.op == b.op && a.inputs == b.inputs && a.outputs == b.outputs && a.attributes == b.attributes;
  };
  for (size_t k = program_.segments.size(); k-- > 0;) {  // it is mostly that of the block before
    const Segment& known = program_.segments[k];
    if (known.phase == segment.phase && known.operands == segment.operands && tiers_[k] == tiers &&
        std::equal(known.instructions.begin(), known.instructions.end(), segment.instructions.begin(),
                   segment.instructions.end(), same)) {
      return static_cast<int>(k);
    }
  }
  return static_cast<int>(program_.segments.size());
}

}  // namespace temper
