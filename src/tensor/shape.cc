#include "tensor/shape.h"

namespace temper {

std::string Shape::ToString() const {
  std::string text = "[";
  for (int i = 0; i < rank_; ++i) {
    if (i > 0) text += ", ";
    text += std::to_string(dims_[i]);
  }
  return text + "]";
}

Bytes TensorType::PackedBytes() const {
  return PackedPanels(layout, shape.rows(), shape.columns()).bytes();
}

std::string TensorType::ToString() const {
  std::string text(temper::ToString(dtype));
  if (packed()) text += "." + std::string(temper::ToString(layout));
  return text + shape.ToString();
}

}  // namespace temper
