// WirePlan: which bytes of a collective go between hosts, as runs that are sent in chunks. Pure data, the same on all
// ranks of a group.
//
// One stream per owner: the owner's parts of all tensors, one after another, each packed. In an all_gather it goes from
// its owner to a deputy on each other host. In a sum each other host sends the owner its own sum of the terms, so an
// element crosses the network once per host, whatever its number of ranks.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "comm/local/collective_plan.h"

namespace temper {

class WirePlan {
 public:
  // For the tensors [first, first + count) of the plan. `wide`: bf16 travels as f32, because sums of several terms must
  // not be rounded before all are added up.
  WirePlan(const CollectivePlan& plan, size_t first, size_t count, bool wide, int64_t chunk_bytes);

  int64_t chunk_bytes() const { return chunk_bytes_; }
  int64_t chunks(int owner) const { return (bytes(owner) + chunk_bytes_ - 1) / chunk_bytes_; }
  int64_t bytes(int owner) const { return begins_[static_cast<size_t>(owner)].back(); }
  int64_t bytes_of_chunk(int owner, int64_t c) const { return std::min(chunk_bytes_, bytes(owner) - c * chunk_bytes_); }

  // Calls body(t, begin, n, at) for the piece of tensor first + t in the chunk: n elements of the packed part from
  // `begin` on, at byte `at` of the chunk.
  template <class Body>
  void ForChunk(int owner, int64_t c, const Body& body) const {
    const int64_t from = c * chunk_bytes_, to = from + bytes_of_chunk(owner, c);
    const std::vector<int64_t>& begins = begins_[static_cast<size_t>(owner)];
    // The first tensor that ends after `from`.
    auto t = static_cast<size_t>(std::upper_bound(begins.begin(), begins.end(), from) - begins.begin()) - 1;
    for (; t < element_bytes_.size() && begins[t] < to; ++t) {
      const int64_t size = element_bytes_[t];
      const int64_t begin = std::max(from - begins[t], int64_t{0}) / size;
      const int64_t end = std::min((to - begins[t]) / size, elements_[static_cast<size_t>(owner)][t]);
      if (begin < end) body(t, begin, end - begin, begins[t] + begin * size - from);
    }
  }

 private:
  int64_t chunk_bytes_;
  std::vector<int64_t> element_bytes_;          // on the wire, per tensor
  std::vector<std::vector<int64_t>> begins_;    // per owner: where each tensor begins in the stream, and its end
  std::vector<std::vector<int64_t>> elements_;  // per owner and tensor
};

// Calls body(at, i, n) for the ranges of a packed part [begin, begin + n) of member m that are contiguous in the whole
// tensor: n elements at `at` of the whole and at begin + i of the part.
template <class Body>
void ForStretches(const CollectiveTensor& tensor, int m, int64_t begin, int64_t n, const Body& body) {
  const int64_t row = tensor.row(m);
  for (int64_t i = 0; i < n;) {
    const int64_t o = (begin + i) / row, column = (begin + i) % row;
    const int64_t count = std::min(n - i, row - column);
    body(tensor.row_begin(m, o) + column, i, count);
    i += count;
  }
}

}  // namespace temper
