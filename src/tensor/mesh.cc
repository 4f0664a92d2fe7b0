#include "tensor/mesh.h"

#include <fmt/format.h>

#include "base/check.h"

namespace temper {
namespace {

constexpr std::string_view kAxisNames[kNumAxes] = {"pp", "dp", "fsdp", "cp", "ep", "depth", "row", "tp", "copy"};

}  // namespace

std::string_view ToString(Axis axis) {
  return kAxisNames[static_cast<size_t>(axis)];
}

std::optional<Axis> ParseAxis(std::string_view text) {
  for (int i = 0; i < kNumAxes; ++i) {
    if (kAxisNames[i] == text) return static_cast<Axis>(i);
  }
  return std::nullopt;
}

std::vector<Axis> AxisSet::axes() const {
  std::vector<Axis> list;
  for (int i = 0; i < kNumAxes; ++i) {
    if (Has(static_cast<Axis>(i))) list.push_back(static_cast<Axis>(i));
  }
  return list;
}

std::string AxisSet::ToString() const {
  std::string text;
  for (const Axis axis : axes()) text += fmt::format("{}{}", text.empty() ? "" : ",", temper::ToString(axis));
  return text;
}

Result<AxisSet> AxisSet::Parse(std::string_view text) {
  AxisSet set;
  if (text.empty()) return set;
  while (true) {
    const size_t n = text.find(',');
    const std::string_view word = text.substr(0, n);
    const auto axis = ParseAxis(word);
    if (!axis)
      return Corrupt(fmt::format("'{}' is not a mesh axis; the axes are {}", word, fmt::join(kAxisNames, ", ")));
    set |= *axis;
    if (n == text.npos) return set;
    text.remove_prefix(n + 1);
  }
}

Part PartOf(int64_t total, int64_t pieces, int64_t index) {
  TEMPER_CHECK(pieces >= 1 && index >= 0 && index < pieces) << "piece " << index << " of " << pieces;
  const int64_t begin = total * index / pieces;
  return {begin, total * (index + 1) / pieces - begin};
}

void Mesh::set_size(Axis axis, int size) {
  TEMPER_CHECK(size >= 1) << temper::ToString(axis) << " of " << size;
  sizes_[static_cast<size_t>(axis)] = size;
}

int Mesh::size(AxisSet axes) const {
  int n = 1;
  for (const Axis axis : axes.axes()) n *= size(axis);
  return n;
}

int Mesh::ranks() const {
  int n = 1;
  for (const int s : sizes_) n *= s;
  return n;
}

AxisSet Mesh::axes() const {
  AxisSet set;
  for (int i = 0; i < kNumAxes; ++i) {
    if (sizes_[static_cast<size_t>(i)] > 1) set |= static_cast<Axis>(i);
  }
  return set;
}

int Mesh::Coordinate(int rank, Axis axis) const {
  TEMPER_CHECK(rank >= 0 && rank < ranks()) << "rank " << rank << " of " << ToString();
  for (int i = kNumAxes; --i > static_cast<int>(axis);) rank /= sizes_[static_cast<size_t>(i)];
  return rank % size(axis);
}

int Mesh::IndexIn(AxisSet axes, int rank) const {
  int index = 0;
  for (const Axis axis : axes.axes()) index = index * size(axis) + Coordinate(rank, axis);
  return index;
}

std::vector<int> Mesh::Group(AxisSet axes, int rank) const {
  std::vector<int> group;
  const AxisSet others = this->axes() - axes;
  const int own = IndexIn(others, rank);
  for (int r = 0; r < ranks(); ++r) {
    if (IndexIn(others, r) == own) group.push_back(r);
  }
  return group;
}

std::string Mesh::ToString() const {
  std::string text;
  for (const Axis axis : axes().axes()) {
    text += fmt::format("{}{}={}", text.empty() ? "" : ",", temper::ToString(axis), size(axis));
  }
  return text.empty() ? "1 rank" : text;
}

}  // namespace temper
