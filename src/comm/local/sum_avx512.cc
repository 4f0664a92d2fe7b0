#include "comm/local/sum-inl.h"

namespace temper {

constexpr SumKernels kSumKernelsAvx512 = kTable;

}  // namespace temper
