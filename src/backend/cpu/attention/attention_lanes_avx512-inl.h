// Lanes of a vector of AVX-512 as attention_tile-inl.h takes them. After vec_avx512.h.
#pragma once

#include "backend/cpu/vector/vec_avx512.h"

namespace temper {
namespace {

TEMPER_VEC uint32_t LanesBelow(int64_t n) {
  return n >= 16 ? 0xFFFF : n <= 0 ? 0 : (1u << n) - 1;
}
// Zero in lanes outside of [begin, end).
TEMPER_VEC Floats KeepRange(Floats x, int64_t begin, int64_t end) {
  return _mm512_maskz_mov_ps(static_cast<__mmask16>(LanesBelow(end) & ~LanesBelow(begin)), x);
}

}  // namespace
}  // namespace temper
