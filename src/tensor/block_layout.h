// The layout of quantised blocks in memory and files. Source: ggml-common.h. Halves are IEEE binary16; all fields are
// packed without gaps.
#pragma once

#include <cstdint>

#include "tensor/dtype.h"

namespace temper {

inline constexpr int kSmallBlock = 32;   // elements of q8_0, q5_0, q5_1, q4_0, q4_1
inline constexpr int kSuperBlock = 256;  // of k-types: groups of 32 (q4_k, q5_k) or 16 (q6_k) share two scales of f16

struct BlockQ8 {  // x = d q
  f16 d;
  int8_t q[kSmallBlock];
};
static_assert(sizeof(BlockQ8) == 34);

struct BlockQ40 {  // x = d (q - 8)
  f16 d;
  uint8_t low[kSmallBlock / 2];  // elements i and i + 16
};
static_assert(sizeof(BlockQ40) == 18);

struct BlockQ41 {  // x = d q + m
  f16 d, m;
  uint8_t low[kSmallBlock / 2];
};
static_assert(sizeof(BlockQ41) == 20);

struct BlockQ50 {  // x = d (q - 16)
  f16 d;
  uint8_t high[4];               // bit 4 of element i: bit i
  uint8_t low[kSmallBlock / 2];  // elements i and i + 16
};
static_assert(sizeof(BlockQ50) == 22);

struct BlockQ51 {  // x = d q + m
  f16 d, m;
  uint8_t high[4];
  uint8_t low[kSmallBlock / 2];
};
static_assert(sizeof(BlockQ51) == 24);

struct BlockQ4K {  // x = d scale q - dmin min, of each group of 32
  f16 d, dmin;
  uint8_t scales[12];            // 8 scales and 8 minima of 6 bits
  uint8_t low[kSuperBlock / 2];  // of 64 elements: i and i + 32
};
static_assert(sizeof(BlockQ4K) == 144);

struct BlockQ5K {
  f16 d, dmin;
  uint8_t scales[12];
  uint8_t high[kSuperBlock / 8];  // bit 4 of element 32 g + i: bit g of byte i
  uint8_t low[kSuperBlock / 2];
};
static_assert(sizeof(BlockQ5K) == 176);

struct BlockQ6K {  // x = d scale (q - 32), of each group of 16
  uint8_t low[kSuperBlock / 2], high[kSuperBlock / 4];
  int8_t scales[kSuperBlock / 16];
  f16 d;
};
static_assert(sizeof(BlockQ6K) == 210);

}  // namespace temper
