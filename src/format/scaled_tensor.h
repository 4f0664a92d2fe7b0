// ScaledTensor: a matrix that a model's files have in a format of elements and scales alone (StoredFormat::scales), as
// FP8 is published: NAME, elements [out, in] row after row, and NAME + "_scale_inv", [out / rows of a block, in /
// columns of one], both rounded up. It dequantises to bf16.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"
#include "tensor/format_rule.h"

namespace temper {

class ScaledTensor : public QuantisedTensor {
 public:
  // `part`: the scales. As OpenQuantised.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  ScaledTensor(const FormatRule& rule, const Part& elements, const Part& scales);

  const StoredFormat& stored_;
  int64_t scales_of_row_;
};

}  // namespace temper
