#include "comm/local/sum-inl.h"

namespace temper {

constexpr SumKernels kSumKernelsAvx2 = kTable;

}  // namespace temper
