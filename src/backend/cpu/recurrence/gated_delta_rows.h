// gated_delta over the documents of one packed row, for one key head and its value heads: once per instruction set.
// Called by gated_delta.cc, which divides rows and heads among threads.
#pragma once

#include <cstdint>

#include "graph/ops/gated_delta_dims.h"
#include "tensor/dtype.h"

namespace temper {

// Operands of the whole op, and which part to compute: tokens [begin, end) of key head `head`. `scratch` has the floats
// of DeltaScratchOf, whose offsets `at` has.
template <class T>
struct DeltaRow {
  DeltaDims dims;
  DeltaScratch at;
  int64_t group;  // value heads of a key head
  const T *q, *k, *v, *b;
  const float* g;
  const int32_t* document_start;
  int64_t begin, end, head;
  float* scratch;
};

template <class T>
struct DeltaGradients {
  const T* d_o;
  T *d_q, *d_k, *d_v, *d_b;
  float* d_g;
};

// Tokens of value head `head`, one after another, each behind the state [D, F] of its slot, which is changed in place.
// states: [slots, value heads, D, F]. `scratch` has DeltaStepFloats.
template <class T>
struct DeltaSteps {
  DeltaDims dims;
  const T *q, *k, *v, *b;
  const float* g;
  const int32_t *slot, *position;
  int64_t head;
  float *states, *scratch;
};

template <class T>
struct DeltaKernelsOf {
  void (*forward)(const DeltaRow<T>& row, T* o);
  void (*backward)(const DeltaRow<T>& row, const DeltaGradients<T>& gradients);
  void (*steps)(const DeltaSteps<T>& steps, T* o);
};

struct DeltaKernels {
  DeltaKernelsOf<float> f32;
  DeltaKernelsOf<bf16> bf16_;
};

extern const DeltaKernels kDeltaAvx2, kDeltaAvx512;

}  // namespace temper
