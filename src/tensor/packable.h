// Which tensors products of bf16 may read packed (tensor/element_layout.h).
#pragma once

#include "tensor/shape.h"

namespace temper {

// A matrix, or a stack of matrices whose rows are whole panels: packed as one matrix with all their rows, each of them
// then begins with a panel, or with a pair within each.
inline bool IsPackable(const TensorType& t) {
  return t.dtype == DType::kBF16 && (t.shape.rank() == 2 || (t.shape.rank() == 3 && t.shape[1] % kPanelLines == 0));
}

}  // namespace temper
