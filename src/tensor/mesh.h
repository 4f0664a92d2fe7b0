// Mesh: the ranks of a run as a grid with named axes, in a fixed order; the last varies fastest with the rank. Pure
// data: a laptop describes a cluster's mesh with it.
//
// What the axes do to a step (compile/mesh/partition.h):
//   pp     pipeline: blocks are dealt to stages
//   dp     data: every rank has its own rows and all weights
//   fsdp   data: every rank has its own rows and a share of each weight, gathered for use
//   cp     context: the tokens of a row are dealt to ranks
//   ep     experts: every rank has its own rows and some of each block's experts, which compute for the rows of all
//   depth  2.5-D tensor parallelism: its own rows, the same share of each weight
//   row    2-D tensor parallelism: its own rows; splits the input dim of weights
//   tp     tensor: heads, ffn and vocabulary are split; in 2-D modes the column axis
//   copy   ranks of a tensor-parallel group beyond the number of KV heads: they split heads, ffn and vocabulary
//          further, and hold copies of keys and values
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace temper {

enum class Axis : uint8_t { kPp, kDp, kFsdp, kCp, kEp, kDepth, kRow, kTp, kCopy };
inline constexpr int kNumAxes = static_cast<int>(Axis::kCopy) + 1;

// The most ranks a mesh can have: more than any training cluster, and few enough that no product of sizes overflows.
inline constexpr int kMostRanks = 1 << 16;

std::string_view ToString(Axis axis);  // "fsdp"
std::optional<Axis> ParseAxis(std::string_view text);

// A set of axes; iterated in mesh order.
class AxisSet {
 public:
  constexpr AxisSet() = default;
  constexpr AxisSet(Axis axis) : bits_(static_cast<uint16_t>(1u << static_cast<int>(axis))) {}  // NOLINT: implicit
  constexpr AxisSet(std::initializer_list<Axis> axes) {
    for (const Axis a : axes) *this = *this | a;
  }

  constexpr bool empty() const { return bits_ == 0; }
  constexpr bool Has(Axis axis) const { return (bits_ >> static_cast<int>(axis)) & 1; }
  constexpr bool HasAll(AxisSet other) const { return (other.bits_ & ~bits_) == 0; }
  friend constexpr AxisSet operator|(AxisSet a, AxisSet b) { return Of(a.bits_ | b.bits_); }
  friend constexpr AxisSet operator&(AxisSet a, AxisSet b) { return Of(a.bits_ & b.bits_); }
  friend constexpr AxisSet operator-(AxisSet a, AxisSet b) { return Of(a.bits_ & ~b.bits_); }
  AxisSet& operator|=(AxisSet other) { return *this = *this | other; }
  friend constexpr bool operator==(AxisSet, AxisSet) = default;
  // For maps; the order has no meaning.
  friend constexpr auto operator<=>(AxisSet, AxisSet) = default;

  std::vector<Axis> axes() const;
  std::string ToString() const;  // "dp,fsdp"; "" where empty
  static Result<AxisSet> Parse(std::string_view text);

 private:
  static constexpr AxisSet Of(unsigned bits) {
    AxisSet s;
    s.bits_ = static_cast<uint16_t>(bits);
    return s;
  }
  uint16_t bits_ = 0;
};

inline constexpr AxisSet kTensorAxes = {Axis::kTp, Axis::kCopy};

// The part [begin, begin + count) of `total` items that piece `index` of `pieces` holds: sizes differ by one at most.
struct Part {
  int64_t begin = 0, count = 0;
  friend bool operator==(const Part&, const Part&) = default;
};
Part PartOf(int64_t total, int64_t pieces, int64_t index);

class Mesh {
 public:
  Mesh() { sizes_.fill(1); }  // one rank

  int size(Axis axis) const { return sizes_[static_cast<size_t>(axis)]; }
  void set_size(Axis axis, int size);  // REQUIRES: size >= 1
  int size(AxisSet axes) const;        // the product
  int ranks() const;
  // The axes of more than one rank.
  AxisSet axes() const;

  int Coordinate(int rank, Axis axis) const;
  // The place of `rank` among the ranks that differ from it only along `axes`, and all of these in that order.
  int IndexIn(AxisSet axes, int rank) const;
  std::vector<int> Group(AxisSet axes, int rank) const;

  std::string ToString() const;  // "pp=2,fsdp=4"; "1 rank"
  friend bool operator==(const Mesh&, const Mesh&) = default;

 private:
  std::array<int, kNumAxes> sizes_;
};

}  // namespace temper
