// BlockFormat: the types of tensors in GGUF files that Temper writes. A row is cut into blocks of `elements` numbers,
// each of `bytes`; a block has its own scales. All are those of llama.cpp (ggml), and so are the bits: encoding gives
// what ggml_quantize_chunk gives without an importance matrix.
// Source: ggml/src/ggml-quants.c, quantize_row_*_ref, and ggml-common.h for the layout of blocks.
// Thread rule: pure functions; call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "base/units.h"

namespace temper {

struct BlockFormat {
  std::string_view name;  // "q4_k", as ggml_type_name
  uint32_t id;            // in files
  int64_t elements;       // of a block: 1 for numbers without scales
  int64_t bytes;          // of a block

  // Encodes n elements. REQUIRES: n is a multiple of `elements`. `encode` is the fastest on this processor, `reference`
  // its readable twin, which gives the same bits.
  void (*encode)(const float* x, std::byte* out, int64_t n);
  void (*reference)(const float* x, std::byte* out, int64_t n);

  bool quantised() const { return elements > 1; }
  // REQUIRES: n is a multiple of `elements`.
  Bytes BytesOf(int64_t n) const { return {n / elements * bytes}; }
};

enum class BlockType : uint8_t { kF32, kF16, kBF16, kQ8_0, kQ5_0, kQ5_1, kQ4K, kQ5K, kQ6K };

const BlockFormat& FormatOf(BlockType type);

}  // namespace temper
