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

// Groups of boxes that are one box together: rows (indices of dim 0) that follow each other, alike in all other dims.
// Each group has the numbers of its boxes in the order of their rows, and so have the groups by their first rows.
std::vector<std::vector<size_t>> JoinRows(std::span<const Box> boxes);

// Why `boxes` do not make up a tensor of shape `whole`: they have to lie in it, to be disjoint and to cover it. "" if
// they do. `text(i)` describes a box.
std::string FaultOfTiling(const Shape& whole, std::span<const Box> boxes,
                          const std::function<std::string(size_t)>& text);

}  // namespace temper
