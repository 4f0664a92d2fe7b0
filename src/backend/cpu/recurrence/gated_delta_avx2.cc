#include "backend/cpu/vector/vec_avx2.h"

#include "backend/cpu/recurrence/gated_delta-inl.h"

namespace temper {

constexpr DeltaKernels kDeltaAvx2 = kTable;

}  // namespace temper
