// SegmentWriter: cuts graphs into segments at changes of (phase, block), shares segments of equal structure, and binds
// them to addresses.
#pragma once

#include <array>
#include <vector>

#include "compile/layout/buffer_table.h"
#include "compile/layout/layout.h"
#include "graph/graph.h"
#include "program/program.h"

namespace temper {

using BytesPerTier = std::array<Bytes, kNumTiers>;

// The regions of one Program above the persistent ones, per tier.
struct Regions {
  BytesPerTier temporaries;  // addresses of the temporaries
  // For a pipeline: offsets of the first slots, and sizes of the slots.
  std::array<SlotSizes, kNumTiers> slots, slot_sizes;

  Bytes At(const Home& home, Tier tier, const Slots& slots_of_call) const;
};

class SegmentWriter {
 public:
  // Both must outlive this.
  SegmentWriter(Program* program, const BufferTable& table) : program_(*program), table_(table) {}

  // Binding indices that execute the nodes [begin, end) of `graph` once.
  std::vector<int> Write(const Graph& graph, size_t begin, size_t end, const Layout& layout, const Regions& regions,
                         const Slots& slots = {});

 private:
  int WriteSegment(const Graph& graph, size_t begin, size_t end, const Layout& layout, const Regions& regions,
                   const Slots& slots);
  // The index of an equal segment with operands of the same types in the same tiers, or the number of segments. A step
  // has about ten.
  int FindEqual(const Segment& segment, const std::vector<Tier>& tiers) const;

  Program& program_;
  const BufferTable& table_;
  std::vector<std::vector<Tier>> tiers_;  // per segment: of its operands
  std::vector<int> operand_of_;           // per root, of the segment at hand; -1: none yet
};

}  // namespace temper
