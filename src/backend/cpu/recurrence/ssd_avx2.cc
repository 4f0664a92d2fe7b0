#include "backend/cpu/vector/vec_avx2.h"

#include "backend/cpu/recurrence/ssd-inl.h"

namespace temper {

constexpr SsdKernels kSsdAvx2 = kSsdTable;

}  // namespace temper
