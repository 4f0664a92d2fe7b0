// GroupTensor: a matrix in 4 bits with scales and zeros of groups of columns (tensor/int4_rows.h), as its tensors in a
// model's files. MODULE.weight is what they dequantise to, in the type of their scales. Three ways to pack it:
//
// - compressed-tensors (pack-quantized): weight_packed [out, in / 8], weight_scale [out, groups], weight_zero_point
//   [out / 8, groups] or none (8), weight_shape;
// - GPTQ: qweight [in / 8, out], scales [groups, out], qzeros [groups, out / 8], whose words are the zeros' less
//   0x11111111;
// - AWQ (gemm): qweight [in, out / 8], scales [groups, out], qzeros [groups, out / 8], whose words have the outputs
//   0, 2, 4, 6, 1, 3, 5, 7.
//
// Words are I32, their first element lowest. With g_idx (weight_g_idx), the group of each column, columns of a group
// need not be neighbours: such a matrix is read as its numbers alone.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/quantised_tensor.h"

namespace temper {

class GroupTensor : public QuantisedTensor {
 public:
  // `part`: the scales. As OpenQuantised.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  Bytes bytes() const override;
  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  enum class Packing { kCompressed, kGptq, kAwq };
  class Reader;
  GroupTensor(ElementFormat format, Packing packing, int64_t stored_group, int64_t group);
  static Result<std::unique_ptr<QuantisedTensor>> OpenPacked(const std::string& module, Packing packing,
                                                             const Part& words, const Part& scales,
                                                             const FindPart& find);

  Packing packing_;
  int64_t stored_group_, group_;  // columns that share a scale: in files, and in memory
  int64_t groups_ = 0;            // of a row, in files
  uint64_t id_;                   // of no other
  Part zeros_, columns_;          // may be none; the latter is g_idx
};

}  // namespace temper
