// Nf4Tensor: a weight that bitsandbytes quantised to NF4 with double quantisation (tensor/nf4_rows.h), as its tensors
// in a model's files: NAME (indices), NAME.absmax (their indices), NAME.nested_absmax (scales), two maps that must be
// the usual ones, and NAME.quant_state.bitsandbytes__nf4, JSON with its shape, type and mean.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"
#include "tensor/nf4_rows.h"

namespace temper {

class Nf4Tensor : public QuantisedTensor {
 public:
  // `part`: NAME.quant_state. As OpenQuantised. It dequantises to a matrix [out, in] of the type that it was
  // quantised from, with bitsandbytes' bits.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  Nf4Tensor() : QuantisedTensor(ElementFormat::Nf4()) {}
  static Result<std::unique_ptr<QuantisedTensor>> OpenNamed(const std::string& name, const Part& state,
                                                            const FindPart& find);
  Status ReadState(const Part& state);
  // As they are stored: one index an element; the absmaxes of all.
  Status ReadIndices(int64_t first, std::span<uint8_t> out) const;
  Result<Nf4Absmaxes> ReadAbsmaxes() const;
  const Part& indices() const { return parts_[0]; }
  const Part& absmax() const { return parts_[1]; }

  std::vector<float> scales_;
  float mean_ = 0;
};

}  // namespace temper
