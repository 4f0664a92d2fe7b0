// Sharding: how a tensor is split over a mesh. Shard: the part of it that one rank holds. Pure data.
#pragma once

#include <array>
#include <string>
#include <vector>

#include "tensor/mesh.h"
#include "tensor/shape.h"

namespace temper {

// Relative to one axis a value is in one of four states:
//   split    the axis is in dims[d]: ranks hold parts of dim d
//   partial  ranks hold terms of a sum
//   varying  all ranks hold the same, and each does something else with it: its gradient is partial
//   whole    all ranks hold the same and do the same with it: so is its gradient
// The gradient of a split value is split in the same way, that of a partial value is the same on all ranks.
struct Sharding {
  // Outermost first: with {tp, fsdp} a dim is cut over tp first and each part over fsdp.
  std::array<std::vector<Axis>, Shape::kMaxRank> dims;
  AxisSet partial, varying;

  AxisSet split(int dim) const;  // the axes of dims[dim]
  AxisSet split() const;         // over all dims
  // The dim that `axis` splits, or -1.
  int DimOf(Axis axis) const;
  // "tp+fsdp,-" for a matrix whose rows are split by tp, then fsdp; then " partial=..", " varying=..".
  std::string ToString(int rank) const;
  friend bool operator==(const Sharding&, const Sharding&) = default;
};

// Where the part of `rank` begins in the whole, and its shape. Uneven parts are allowed.
struct Box {
  Shape begin, shape;
  friend bool operator==(const Box&, const Box&) = default;
};
Box BoxOf(const Shape& global, const Sharding& sharding, const Mesh& mesh, int rank);

// Which part of a persistent tensor a rank holds, beside its own memory, which has the part's shape.
struct Shard {
  Shape global;
  Shape begin;      // of the part
  AxisSet split;    // axes along which other ranks hold other parts
  AxisSet partial;  // for a trainable value: axes along which ranks contribute different terms of its gradient
  std::string ToString() const;  // " of=[32, 64] at=[16, 0] split=fsdp partial=dp"
  friend bool operator==(const Shard&, const Shard&) = default;
};

}  // namespace temper
