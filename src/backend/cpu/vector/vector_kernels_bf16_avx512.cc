#define TEMPER_HARDWARE_BF16
#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/vector/table-inl.h"

namespace temper {

constexpr VectorKernelsOf<bf16> kBf16VectorsAvx512Bf16 = kTableOf<bf16>;

}  // namespace temper
