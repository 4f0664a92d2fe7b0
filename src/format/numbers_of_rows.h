// The numbers of rows in a quantised format, for readers of stored weights (format/quantised_tensor.h).
// Thread rule: pure; `rows` is the caller's.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

// As QuantisedTensor::ReadElementsAs, of a matrix of so many columns in this format: what kernels compute with.
Status ReadNumbersAs(QuantisedTensor::Rows& rows, ElementFormat format, int64_t columns, int64_t first, DType target,
                     std::span<std::byte> out);

}  // namespace temper
