// What short_conv and its kernels agree on.
#pragma once

#include <cstdint>

namespace temper {

// Taps of a channel: Lfm2 has 3, Mamba-2 and gated delta nets have 4. Kernels keep a few rows per tap on their stack.
inline constexpr int64_t kMaxConvTaps = 8;

}  // namespace temper
