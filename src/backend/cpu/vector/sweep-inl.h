// Loops over n contiguous elements, a vector at a time; the last, shorter one comes as a Part.
// Included after vec_avx2.h or vec_avx512.h, by files of that instruction set only.
#pragma once

namespace temper {
namespace {

// Calls body(i, lanes).
template <class Body>
TEMPER_VEC void Sweep(int64_t n, const Body& body) {
  int64_t i = 0;
#pragma GCC unroll 2
  for (; i + kLanes <= n; i += kLanes) body(i, Full{});
  if (i < n) body(i, First(n - i));
}

// Sum of body(i, lanes) over all elements, in four vector accumulators that hide the latency of addition: an f32 sum of
// n terms loses at most (n / (4 kLanes) + 2 + log2 kLanes) roundoffs. REQUIRES: body's lanes outside of a Part are
// zero.
template <class Body>
TEMPER_VEC float Total(int64_t n, const Body& body) {
  Floats a = Zero(), b = Zero(), c = Zero(), d = Zero();
  int64_t i = 0;
  for (; i + 4 * kLanes <= n; i += 4 * kLanes) {
    a += body(i, Full{});
    b += body(i + kLanes, Full{});
    c += body(i + 2 * kLanes, Full{});
    d += body(i + 3 * kLanes, Full{});
  }
  for (; i + kLanes <= n; i += kLanes) a += body(i, Full{});
  if (i < n) b += body(i, First(n - i));
  return Sum((a + b) + (c + d));
}

}  // namespace
}  // namespace temper
