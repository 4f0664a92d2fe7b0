#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/vector/table-inl.h"

namespace temper {

constexpr VectorKernels kVectorKernelsAvx512 = {.f32 = kTableOf<float>, .bf16_ = kTableOf<bf16>};

}  // namespace temper
