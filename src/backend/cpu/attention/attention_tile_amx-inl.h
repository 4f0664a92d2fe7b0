// Attention on Intel's matrix units; its softmax is AVX-512's. Compiled twice, as gemm_tile_amx-inl.h is.
#pragma once

#include "backend/cpu/attention/attention_lanes_avx512-inl.h"
#include "backend/cpu/attention/attention_sums_amx-inl.h"
// What a tile's products are called must be known before its bodies.
#include "backend/cpu/attention/attention_pairs-inl.h"
