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

// Whether `next` begins where `box` ends along `dim`, and is alike in all others.
bool Follows(const Box& box, const Box& next, int dim) {
  if (dim >= box.begin.rank() || next.begin[dim] != box.begin[dim] + box.shape[dim]) return false;
  for (int d = 0; d < box.begin.rank(); ++d) {
    if (d != dim && (next.begin[d] != box.begin[d] || next.shape[d] != box.shape[d])) return false;
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

std::vector<JoinedBoxes> JoinBoxes(std::span<const Box> boxes) {
  std::vector<JoinedBoxes> joined;
  const auto join = [&](size_t i, int dim) {
    JoinedBoxes& last = joined.back();
    last.boxes.push_back(i);
    last.alternate = dim == 1;
    last.whole.shape.set_dim(dim, last.whole.shape[dim] + boxes[i].shape[dim]);
  };
  for (const size_t i : ByRow(boxes)) {
    const bool some = !joined.empty(), alone = some && joined.back().boxes.size() == 1;
    if (some && (alone || !joined.back().alternate) && Follows(joined.back().whole, boxes[i], 0)) {
      join(i, 0);
    } else if (some && boxes[i].shape.rank() > 2 && (alone || joined.back().alternate) &&
               Follows(joined.back().whole, boxes[i], 1)) {
      join(i, 1);
    } else {
      joined.push_back({{i}, false, boxes[i]});
    }
  }
  return joined;
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
