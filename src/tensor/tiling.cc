#include "tensor/tiling.h"

#include <fmt/core.h>

#include <algorithm>
#include <numeric>

namespace temper {
namespace {

// More than a checkpoint has of any tensor on a cluster of today; boxes are compared with each other.
constexpr size_t kMostBoxes = 1 << 14;

int64_t FirstRow(const Box& box) {
  return box.begin.rank() == 0 ? 0 : box.begin[0];
}
int64_t EndRow(const Box& box) {
  return box.begin.rank() == 0 ? 1 : box.begin[0] + box.shape[0];
}

// The numbers of `boxes`, by their first rows.
std::vector<size_t> ByRow(std::span<const Box> boxes) {
  std::vector<size_t> order(boxes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return FirstRow(boxes[a]) < FirstRow(boxes[b]); });
  return order;
}

bool Follows(const Box& box, const Box& next) {
  if (box.begin.rank() == 0 || FirstRow(next) != EndRow(box)) return false;
  for (int d = 1; d < box.begin.rank(); ++d) {
    if (next.begin[d] != box.begin[d] || next.shape[d] != box.shape[d]) return false;
  }
  return true;
}

bool Within(const Box& box, const Shape& whole) {
  if (box.begin.rank() != whole.rank() || box.shape.rank() != whole.rank()) return false;
  for (int d = 0; d < whole.rank(); ++d) {
    if (box.begin[d] + box.shape[d] > whole[d]) return false;
  }
  return true;
}

}  // namespace

bool Meet(const Box& a, const Box& b) {
  for (int d = 0; d < a.shape.rank(); ++d) {
    if (a.begin[d] >= b.begin[d] + b.shape[d] || b.begin[d] >= a.begin[d] + a.shape[d]) return false;
  }
  return a.shape.elements() > 0 && b.shape.elements() > 0;
}

std::vector<std::vector<size_t>> JoinRows(std::span<const Box> boxes) {
  std::vector<std::vector<size_t>> groups;
  for (const size_t i : ByRow(boxes)) {
    if (!groups.empty() && Follows(boxes[groups.back().back()], boxes[i])) {
      groups.back().push_back(i);
    } else {
      groups.push_back({i});
    }
  }
  return groups;
}

std::string FaultOfTiling(const Shape& whole, std::span<const Box> boxes,
                          const std::function<std::string(size_t)>& text) {
  if (boxes.empty()) return "it has no slices";
  if (boxes.size() > kMostBoxes) return fmt::format("it has {} slices, {} at most", boxes.size(), kMostBoxes);
  int64_t elements = 0;
  for (size_t i = 0; i < boxes.size(); ++i) {
    if (!Within(boxes[i], whole)) return text(i) + " is not a part of it";
    if (boxes[i].shape.elements() == 0 && boxes.size() > 1) return text(i) + " is empty";
    elements += boxes[i].shape.elements();
  }
  if (elements != whole.elements() || (boxes.size() == 1 && !(boxes[0].shape == whole))) {
    return fmt::format("its {} slices have {} elements of {}", boxes.size(), elements, whole.elements());
  }
  if (boxes.size() == 1) return "";
  const std::vector<size_t> order = ByRow(boxes);
  for (size_t i = 0; i < order.size(); ++i) {
    const Box& box = boxes[order[i]];
    for (size_t j = i + 1; j < order.size() && FirstRow(boxes[order[j]]) < EndRow(box); ++j) {
      if (Meet(box, boxes[order[j]])) return fmt::format("{} overlaps {}", text(order[i]), text(order[j]));
    }
  }
  return "";
}

}  // namespace temper
