#include "format/gguf/block_format.h"

#include "base/check.h"
#include "format/conversion.h"
#include "format/gguf/block_encoders.h"
#include "tensor/block_layout.h"

namespace temper {
namespace {

template <DType kTo>
void Store(const float* x, std::byte* out, int64_t n) {
  Convert(DType::kF32, reinterpret_cast<const std::byte*>(x), kTo, out, n);
}
template <DType kTo>
void StoreReference(const float* x, std::byte* out, int64_t n) {
  ConvertReference(DType::kF32, reinterpret_cast<const std::byte*>(x), kTo, out, n);
}

using Encode = void (*)(const float*, std::byte*, int64_t);
Encode FastestOf(Encode scalar, Encode avx2) {
  return __builtin_cpu_supports("avx2") ? avx2 : scalar;
}

}  // namespace

const BlockFormat& FormatOf(BlockType type) {
  using namespace internal;
  // In the order of BlockType. Ids: ggml.h, enum ggml_type.
  static const BlockFormat kFormats[] = {
      {"f32", 0, 1, 4, Store<DType::kF32>, StoreReference<DType::kF32>},
      {"f16", 1, 1, 2, Store<DType::kF16>, StoreReference<DType::kF16>},
      {"bf16", 30, 1, 2, Store<DType::kBF16>, StoreReference<DType::kBF16>},
      {"q8_0", 8, kSmallBlock, sizeof(BlockQ8), FastestOf(EncodeQ8, EncodeQ8Avx2), EncodeQ8},
      {"q5_0", 6, kSmallBlock, sizeof(BlockQ50), EncodeQ50, EncodeQ50},
      {"q5_1", 7, kSmallBlock, sizeof(BlockQ51), EncodeQ51, EncodeQ51},
      {"q4_k", 12, kSuperBlock, sizeof(BlockQ4K), FastestOf(EncodeQ4K, EncodeQ4KAvx2), EncodeQ4K},
      {"q5_k", 13, kSuperBlock, sizeof(BlockQ5K), FastestOf(EncodeQ5K, EncodeQ5KAvx2), EncodeQ5K},
      {"q6_k", 14, kSuperBlock, sizeof(BlockQ6K), FastestOf(EncodeQ6K, EncodeQ6KAvx2), EncodeQ6K},
  };
  return kFormats[static_cast<size_t>(type)];
}

}  // namespace temper
