// BlockDecoder: turns blocks of a GGUF file's types into numbers, with the bits of ggml's dequantize_row_* and of the
// gguf package. More types than Temper writes (format/gguf/block_format.h). Source: ggml/src/ggml-quants.c.
// Thread rule: pure functions; call from any thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/units.h"

namespace temper {

struct BlockDecoder {
  std::string_view name;  // "q4_k", as ggml_type_name
  uint32_t id;            // in files
  int64_t elements;       // of a block
  int64_t bytes;          // of a block
  int64_t scales_at;      // the byte of its f16, which lie together
  int64_t scales;         // how many they are
  // Decodes n elements. REQUIRES: n is a multiple of `elements`.
  void (*decode)(const std::byte* in, float* x, int64_t n);

  // Whether the scales of n elements are numbers. REQUIRES: n is a multiple of `elements`.
  bool IsFinite(const std::byte* in, int64_t n) const;

  // REQUIRES: n is a multiple of `elements`.
  Bytes BytesOf(int64_t n) const { return {n / elements * bytes}; }
};

// nullptr for a type without blocks (f32, f16, ...) or one that is not decoded.
const BlockDecoder* FindBlockDecoder(uint32_t id);

// ggml's name of any type, for messages; "" if it has none.
std::string_view NameOfGgmlType(uint32_t id);

}  // namespace temper
