#include "backend/cpu/vector/vec_avx2.h"

#include "backend/cpu/attention/softmax_row-inl.h"

namespace temper {

constexpr SoftmaxRowKernels kSoftmaxRowAvx2 = kTable;

}  // namespace temper
