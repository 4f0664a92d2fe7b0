// StackedTensor: a stack [matrices, out, in] whose matrices a model's files have one by one, each in the same quantised
// format; or parts of their rows, as gate and up of experts.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

class StackedTensor : public QuantisedTensor {
 public:
  // `pieces`, in the order of the stack's rows, outlive it. REQUIRES: they have one format and one type, are matrices
  // with as many columns as `dims`, [matrices, out, in], and together have its rows; none is transposed.
  StackedTensor(const std::string& name, std::vector<int64_t> dims, std::vector<const QuantisedTensor*> pieces);

  Bytes bytes() const override;
  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  // Calls fn(piece, its first row, rows of it) for the runs of rows [first, first + count) of all matrices.
  template <class Fn>
  Status ForPieces(int64_t first, int64_t count, const Fn& fn) const;

  std::vector<const QuantisedTensor*> pieces_;
  std::vector<int64_t> first_rows_;  // of each piece, and the end of the last
};

}  // namespace temper
