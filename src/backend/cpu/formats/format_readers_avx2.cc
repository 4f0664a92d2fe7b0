#include "backend/cpu/vector/vec_avx2.h"

#include "backend/cpu/formats/readers-inl.h"

namespace temper {

constexpr FormatReaders kFormatReadersAvx2 = {kReaders};

}  // namespace temper
