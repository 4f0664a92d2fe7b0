#include "backend/cpu/vector/vec_avx512.h"

#include "backend/cpu/formats/readers-inl.h"

namespace temper {

constexpr FormatReaders kFormatReadersAvx512 = {kReaders};

}  // namespace temper
