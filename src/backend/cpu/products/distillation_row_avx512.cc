#include "backend/cpu/vector/vec_avx512.h"

#include <type_traits>

#include "backend/cpu/products/distillation_row-inl.h"

namespace temper {

constexpr DistillationRowKernels kDistillationRowAvx512 = kTable;

}  // namespace temper
