#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/softmax_row-inl.h"

namespace temper {

constexpr SoftmaxRowKernels kSoftmaxRowAvx512 = kTable;

}  // namespace temper
