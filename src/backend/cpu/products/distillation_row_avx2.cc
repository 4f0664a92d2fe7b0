#include "backend/cpu/vector/vec_avx2.h"

#include <type_traits>

#include "backend/cpu/products/distillation_row-inl.h"

namespace temper {

constexpr DistillationRowKernels kDistillationRowAvx2 = kTable;

}  // namespace temper
