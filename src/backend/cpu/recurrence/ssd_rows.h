// ssd over the documents of one packed row, for one block of a group's heads: once per instruction set. Called by
// ssd.cc, which divides rows and heads among threads.
#pragma once

#include <cstdint>

#include "graph/ops/ssd_dims.h"
#include "tensor/dtype.h"

namespace temper {

// Operands of the whole op, and which part to compute: tokens [begin, end) of `heads` heads from `first_head` on, all
// of group `group`. `scratch` has the floats of SsdScratchOf, whose offsets `at` has.
template <class T>
struct SsdRow {
  SsdDims dims;
  SsdScratch at;
  const T *x, *b, *c, *d;
  const float *g, *dt;
  const int32_t* document_start;
  int64_t begin, end, group, first_head, heads;
  float* scratch;
};

// d_b and d_c: of the block's heads, [T, G*N] both. d_d: of each token.
template <class T>
struct SsdGradients {
  const T* d_y;
  T* d_x;
  float *d_b, *d_c, *d_g, *d_dt, *d_d;
};

// Tokens of head `head`, one after another, each behind the state [N, P] of its slot, which is changed in place.
// states: [slots, heads, N, P].
template <class T>
struct SsdSteps {
  SsdDims dims;
  const T *x, *b, *c, *d;
  const float *g, *dt;
  const int32_t *slot, *position;
  int64_t head;
  float* states;
};

template <class T>
struct SsdKernelsOf {
  void (*forward)(const SsdRow<T>& row, T* y);
  void (*backward)(const SsdRow<T>& row, const SsdGradients<T>& gradients);
  void (*steps)(const SsdSteps<T>& steps, T* y);
  // Elements [begin, end) of y: sums of those of `count` terms, each `stride` behind the one before, in their order.
  void (*add)(const float* terms, int64_t count, int64_t stride, int64_t begin, int64_t end, T* y);
};

struct SsdKernels {
  SsdKernelsOf<float> f32;
  SsdKernelsOf<bf16> bf16_;
};

extern const SsdKernels kSsdAvx2, kSsdAvx512;

}  // namespace temper
