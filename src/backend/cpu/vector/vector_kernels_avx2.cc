#include "backend/cpu/vector/vec_avx2.h"

#include "backend/cpu/vector/table-inl.h"

namespace temper {

constexpr VectorKernels kVectorKernelsAvx2 = {.f32 = kTableOf<float>, .bf16_ = kTableOf<bf16>};

}  // namespace temper
