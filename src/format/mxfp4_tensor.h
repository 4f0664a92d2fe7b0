// Mxfp4Tensor: a stack of matrices that a model's files have in MXFP4 (tensor/mxfp4_rows.h), as OpenAI publishes
// gpt-oss: NAME_blocks, U8 [matrices, out, in / 32, 16], two elements a byte; and NAME_scales, U8 [matrices, out,
// in / 32]. Unquantised files have NAME, [matrices, in, out]: the transpose of each matrix.
//
// ModelWeights has such a stack as one tensor of bf16 in two pieces, its blocks and its scales.
//
// Reading numbers of the transposes dequantises whole matrices, into two buffers of one.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "format/tensor_file.h"

namespace temper {

class Mxfp4Tensor {
 public:
  static constexpr char kBlocks[] = "_blocks", kScales[] = "_scales";

  struct Stored {
    const TensorFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  // NAME, bf16 [matrices, in, out]. kCorrupt where blocks and scales do not fit each other; the error names file and
  // tensors.
  static Result<StoredTensor> WholeOf(const std::string& name, const Stored& blocks, const Stored& scales);
  // The stack of a ModelWeights::Entry, which must outlive it; nullopt: it is stored otherwise.
  template <class Entry>
  static std::optional<Mxfp4Tensor> Of(const Entry& entry) {
    if (entry.pieces == nullptr || entry.pieces->size() != 2) return std::nullopt;
    const auto &blocks = entry.pieces->front(), &scales = entry.pieces->back();
    if (!AreBlocks(*entry.tensor, *blocks.stored)) return std::nullopt;
    return Mxfp4Tensor({blocks.file, blocks.stored}, {scales.file, scales.stored});
  }

  // The elements that out.size() / SizeOf(target) values of NAME, from `first` on, dequantise to. Reads all of the
  // matrices that they lie in.
  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const;
  // The same of the transpose [matrices, out, in], as the file has them: a run of it.
  Status ReadTransposedAs(int64_t first, DType target, std::span<std::byte> out) const;

  // Rows [first, first + rows) of those of all matrices, as they are stored. REQUIRES: `pairs` has rows * in / 2 bytes,
  // `scales` rows * in / 32.
  Status ReadRows(int64_t first, std::span<std::byte> pairs, std::span<std::byte> scales) const;

  const Stored& blocks() const { return blocks_; }
  const Stored& scales() const { return scales_; }
  Bytes bytes() const { return blocks_.tensor->bytes() + scales_.tensor->bytes(); }  // in the file

 private:
  Mxfp4Tensor(const Stored& blocks, const Stored& scales) : blocks_(blocks), scales_(scales) {}
  // Whether a tensor in pieces is of numbers while its first piece is of bytes.
  static bool AreBlocks(const StoredTensor& whole, const StoredTensor& blocks);

  Stored blocks_, scales_;
};

}  // namespace temper
