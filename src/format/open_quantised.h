// The quantised weights among the tensors of a model's files.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

// The weight that `part` marks as quantised, null if it marks none. kCorrupt if other parts are missing or contradict
// it, kUnsupported if it is quantised in a way that is not read; errors name file and tensor.
Result<std::unique_ptr<QuantisedTensor>> OpenQuantised(const QuantisedTensor::Part& part,
                                                       const QuantisedTensor::FindPart& find);

}  // namespace temper
