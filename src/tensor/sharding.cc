#include "tensor/sharding.h"

#include <fmt/core.h>

namespace temper {

AxisSet Sharding::split(int dim) const {
  AxisSet set;
  for (const Axis axis : dims[static_cast<size_t>(dim)]) set |= axis;
  return set;
}

AxisSet Sharding::split() const {
  AxisSet set;
  for (int d = 0; d < Shape::kMaxRank; ++d) set |= split(d);
  return set;
}

int Sharding::DimOf(Axis axis) const {
  for (int d = 0; d < Shape::kMaxRank; ++d) {
    if (split(d).Has(axis)) return d;
  }
  return -1;
}

std::string Sharding::ToString(int rank) const {
  std::string text;
  for (int d = 0; d < rank; ++d) {
    if (d > 0) text += ',';
    const auto& axes = dims[static_cast<size_t>(d)];
    if (axes.empty()) text += '-';
    for (size_t i = 0; i < axes.size(); ++i) text += fmt::format("{}{}", i ? "+" : "", temper::ToString(axes[i]));
  }
  if (!partial.empty()) text += " partial=" + partial.ToString();
  if (!varying.empty()) text += " varying=" + varying.ToString();
  return text;
}

std::string Shard::ToString() const {
  return fmt::format(" of={} at={} split={} partial={}", global.ToString(), begin.ToString(), split.ToString(),
                     partial.ToString());
}

Box BoxOf(const Shape& global, const Sharding& sharding, const Mesh& mesh, int rank) {
  Box box;
  for (int d = 0; d < global.rank(); ++d) {
    Part part{0, global[d]};
    for (const Axis axis : sharding.dims[static_cast<size_t>(d)]) {
      const Part inner = PartOf(part.count, mesh.size(axis), mesh.Coordinate(rank, axis));
      part = {part.begin + inner.begin, inner.count};
    }
    box.begin.Append(part.begin);
    box.shape.Append(part.count);
  }
  return box;
}

}  // namespace temper
