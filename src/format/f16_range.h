// F16Range: whether numbers that were written as float16 were larger than it can hold, 65,504. A model that was
// published in float16 is trained in bf16 or f32, which have no such bound, and is then written in float16 again.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "tensor/dtype.h"

namespace temper {

class F16Range {
 public:
  // `numbers` of type `written`, as they were written; notes those of f16 that are infinite.
  void Note(const std::string& tensor, DType written, std::span<const std::byte> numbers);
  // What a user should hear of `path`, which they were written to; empty: all fit.
  std::string Warning(const std::string& path) const;

 private:
  int64_t infinite_ = 0;
  std::string first_;  // the tensor of the first
};

}  // namespace temper
