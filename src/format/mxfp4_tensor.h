// Mxfp4Tensor: a stack of matrices that a model's files have in MXFP4 (tensor/mxfp4_rows.h), as OpenAI publishes
// gpt-oss: NAME_blocks, U8 [matrices, out, in / 32, 16], two elements a byte; and NAME_scales, U8 [matrices, out,
// in / 32]. Unquantised files have NAME, [matrices, in, out]: the transpose of each matrix.
//
// It is one tensor of bf16, [matrices, in, out].
//
// Reading numbers of the transposes dequantises whole matrices, into two buffers of one.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

class Mxfp4Tensor : public QuantisedTensor {
 public:
  // `part`: NAME_blocks. As OpenQuantised; blocks without scales mark nothing.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  bool transposed() const override { return true; }
  Status ReadTransposedAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  Mxfp4Tensor() : QuantisedTensor(ElementFormat::Mxfp4()) {}
  const Part& blocks() const { return parts_[0]; }
  const Part& scales() const { return parts_[1]; }
};

}  // namespace temper
