// Tiling: boxes that make up a tensor, as the ranks of a run write it together. Pure data.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/sharding.h"

namespace temper {

// Whether two boxes of one tensor have an element in common.
bool Meet(const Box& a, const Box& b);

// Boxes that are one box together: `boxes` has their numbers.
struct JoinedBoxes {
  std::vector<size_t> boxes;
  // false: rows (indices of dim 0) that follow each other, alike in all other dims. true: the same rows of three dims
  // and more, which follow each other along dim 1: segments of each matrix of a stack. Row-major, their rows alternate.
  bool alternate = false;
  Box whole;
};
// Joins what can be; the results are in the order of their first rows.
std::vector<JoinedBoxes> JoinBoxes(std::span<const Box> boxes);

// Why `boxes` do not make up a tensor of shape `whole`: they have to lie in it, to be disjoint and to cover it. "" if
// they do. `text(i)` describes a box.
std::string FaultOfTiling(const Shape& whole, std::span<const Box> boxes,
                          const std::function<std::string(size_t)>& text);

}  // namespace temper
