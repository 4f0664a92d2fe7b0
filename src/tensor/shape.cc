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

std::string TensorType::ToString() const {
  return std::string(temper::ToString(dtype)) + shape.ToString();
}

}  // namespace temper
