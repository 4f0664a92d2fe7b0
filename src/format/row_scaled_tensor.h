// RowScaledTensor: a matrix that a model's files have in elements of 8 bits with one scale for each row, or one for
// all: MODULE.weight in F8_E4M3 or I8, and
//
// - MODULE.weight_scale, as compressed-tensors writes both (float-quantized, int-quantized);
// - MODULE.weight_scale_inv, one for all, as transformers writes FP8 where weight_block_size is null;
// - MODULE.SCB, as bitsandbytes writes int8 (LLM.int8): 127 times the scale of each row.
//
// In memory it is FP8 (tensor/fp8_rows.cc) or int8 rows (tensor/int8_rows.h). It dequantises to bf16. Scales of
// activations beside it are not used.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

class RowScaledTensor : public QuantisedTensor {
 public:
  // `part`: the scales. As OpenQuantised.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  RowScaledTensor(ElementFormat format, const Part& elements, const Part& scales, float per_scale);

  float per_scale_;  // what a stored scale is multiplied by
};

}  // namespace temper
