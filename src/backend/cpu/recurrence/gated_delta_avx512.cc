#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/recurrence/gated_delta-inl.h"

namespace temper {

constexpr DeltaKernels kDeltaAvx512 = kTable;

}  // namespace temper
