// Nf4Tensor: a weight that bitsandbytes quantised to NF4 with double quantisation (tensor/nf4_rows.h), as its tensors
// in a model's files: NAME (indices), NAME.absmax (their indices), NAME.nested_absmax (scales), two maps that must be
// the usual ones, and NAME.quant_state.bitsandbytes__nf4, JSON with its shape, type and mean.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>

#include "format/tensor_file.h"
#include "tensor/nf4_rows.h"

namespace temper {

class Nf4Tensor {
 public:
  static constexpr char kState[] = ".quant_state.bitsandbytes__nf4";

  struct Stored {
    const TensorFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  // `find` gives tensors of the files by name, null pointers where absent; they outlive the result. kCorrupt if one is
  // missing or contradicts the others, kUnsupported if it is quantised in another way; errors name file and tensor.
  static Result<std::unique_ptr<Nf4Tensor>> Open(const std::string& name,
                                                 const std::function<Stored(const std::string&)>& find);

  // The weight as a matrix [out, in] of the type that it was quantised from: what it dequantises to.
  const StoredTensor& whole() const { return whole_; }
  const Stored& indices() const { return indices_; }
  const Stored& absmax() const { return absmax_; }

  // The elements that out.size() / SizeOf(target) values from `first` on dequantise to, with bitsandbytes' bits.
  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const;
  // As they are stored: one index an element; the absmaxes of all.
  Status ReadIndices(int64_t first, std::span<uint8_t> out) const;
  Result<Nf4Absmaxes> ReadAbsmaxes() const;

 private:
  Nf4Tensor() = default;
  Status ReadState(const Stored& state);

  StoredTensor whole_;
  Stored indices_, absmax_;
  std::vector<float> scales_;
  float mean_ = 0;
};

}  // namespace temper
