// A kernel that draws a number for every element by its place in the batch (graph/ops/draws.h, base/philox.h): threads
// take ranges of whole draw groups, or rows where those are parts of wider ones.
#pragma once

#include <algorithm>

#include "backend/cpu/pointwise/range_kernel.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/philox.h"
#include "base/team.h"
#include "graph/ops/draw_places.h"

namespace temper {

inline Draws DrawsOf(const RngKey& key) {
  Draws draws{.step0 = static_cast<uint32_t>(key.step), .step1 = static_cast<uint32_t>(key.step >> 32)};
  const uint64_t mixed = MixedKey(key);
  for (uint32_t round = 0; round < 10; ++round) {
    draws.keys[round][0] = static_cast<uint32_t>(mixed) + round * kPhiloxWeyl0;
    draws.keys[round][1] = static_cast<uint32_t>(mixed >> 32) + round * kPhiloxWeyl1;
  }
  return draws;
}

// The elements before the first that begins an aligned range; returns how many of the n they are. They are drawn with
// what precedes them in their range. `first`: the place of the first in the batch.
template <class From, class To, class Loop>
int64_t DrawHead(const Loop& loop, const Draws& draws, const From* x, To* y, uint64_t first, int64_t n) {
  const auto before = static_cast<int64_t>(first % kRangeAlignment);
  if (before == 0) return 0;
  const int64_t head = std::min(n, kRangeAlignment - before);
  From range[kRangeAlignment] = {};
  To drawn[kRangeAlignment];
  std::copy_n(x, head, range + before);
  loop(draws, range, drawn, static_cast<int64_t>(first) - before, before + head);
  std::copy_n(drawn + before, head, y);
  return head;
}

// `loop(draws, x, y, begin, n)`: for elements [begin, begin + n) of the batch. REQUIRES: AllFast of x and y.
template <class From, class To = From, class Loop>
std::unique_ptr<Kernel> MakeDrawnKernel(const KernelSpec& spec, const Loop& loop) {
  const int threads = spec.threads;
  const int64_t T = spec.inputs[0].shape.rows(), C = spec.inputs[0].shape.columns();
  const int64_t columns = spec.attributes.IntOr("columns", C);
  const int64_t row = spec.attributes.IntOr("row", 0);
  const auto column = static_cast<uint64_t>(spec.attributes.IntOr("column", 0));
  const DrawPlaces places = DrawPlacesOf(spec.attributes);
  const bool in_order = places.in_order() && columns == C;
  return MakeKernel([=](const KernelArgs& args) {
    const From* const x = In<From>(args, 0);
    const int64_t* const rng = In<int64_t>(args, 1);
    To* const y = Out<To>(args, 0);
    const Draws draws = DrawsOf({.seed = static_cast<uint64_t>(rng[kRngSeed]),
                                 .name_hash = args.rng_name_hash,
                                 .step = static_cast<uint64_t>(rng[kRngStep])});
    const auto first_token = static_cast<uint64_t>(rng[kRngFirstToken]);
    const auto place = [=](int64_t t) {
      return (first_token + static_cast<uint64_t>(places.PlaceOf(row + t))) * static_cast<uint64_t>(columns) + column;
    };
    if (in_order) {  // rows follow one another in the batch
      const int64_t head = DrawHead(loop, draws, x, y, place(0), T * C);
      const auto first = static_cast<int64_t>(place(0)) + head;
      ParallelBlocks(threads, T * C - head, kElementsPerRange, [=, &draws](int64_t begin, int64_t end) {
        loop(draws, x + head + begin, y + head + begin, first + begin, end - begin);
      });
      return OkStatus();
    }
    const int64_t rows_at_once = std::max<int64_t>(1, kElementsPerRange / std::max<int64_t>(1, C));
    ParallelBlocks(threads, T, rows_at_once, [=, &draws](int64_t begin, int64_t end) {
      for (int64_t t = begin; t < end; ++t) {
        const int64_t head = DrawHead(loop, draws, x + t * C, y + t * C, place(t), C);
        loop(draws, x + t * C + head, y + t * C + head, static_cast<int64_t>(place(t)) + head, C - head);
      }
    });
    return OkStatus();
  });
}

}  // namespace temper
