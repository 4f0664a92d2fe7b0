// BufferTable: the persistent region of Programs that are compiled together: a buffer for each persistent value of
// their graphs, and where it lies. Buffers of whole disk blocks come first, each aligned to a block, so that a
// checkpoint writes them without a copy (WriteMode::kDirect); otherwise the order is that of first appearance.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "graph/graph.h"
#include "program/program.h"

namespace temper {

class BufferTable {
 public:
  // `whole_step`: the name of the Program that is one micro-batch, and has this graph alone; else empty. Error: two
  // graphs disagree about the type, role or tier of a buffer.
  Status Add(const Graph& graph, const std::string& whole_step = "");
  // Puts the buffer among the temporaries of its tier, `offset` bytes from their beginning. REQUIRES: it is not there
  // yet.
  void MakeTransient(size_t index, Bytes offset);
  // Call once, after the last Add of an unknown graph. On the disk, the values that the run writes come first (one
  // file), then frozen weights, which are read from the model's files.
  void GiveOffsets();

  // The root of each value. REQUIRES: a graph that was added; likewise below.
  const std::vector<ValueId>& RootsIn(const Graph& graph) const { return of_.at(&graph).roots; }
  // REQUIRES: `root` is a persistent value that owns its address.
  size_t IndexOf(const Graph& graph, ValueId root) const { return of_.at(&graph).indices[static_cast<size_t>(root)]; }
  const Buffer& operator[](size_t index) const { return buffers_[index]; }
  Bytes end(Tier tier) const { return end_[static_cast<size_t>(tier)]; }

  // The buffers that the graphs use, in order.
  std::vector<Buffer> UsedBy(const std::vector<const Graph*>& graphs) const;

 private:
  // Per buffer the one at whose place it lies, or itself.
  std::vector<size_t> SharedPlaces() const;

  static constexpr size_t kNoBuffer = SIZE_MAX;
  struct OfGraph {
    std::vector<ValueId> roots;   // per value
    std::vector<size_t> indices;  // per root of a persistent value: its buffer
  };

  std::vector<Buffer> buffers_;
  std::unordered_map<std::string, size_t> index_;
  std::map<const Graph*, OfGraph> of_;
  std::array<Bytes, kNumTiers> end_ = {};
};

}  // namespace temper
