#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/recurrence/ssd-inl.h"

namespace temper {

constexpr SsdKernels kSsdAvx512 = kSsdTable;

}  // namespace temper
