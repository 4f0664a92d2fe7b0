// BlockTensor: a matrix that a GGUF file has in blocks (tensor/gguf_rows.cc), under its name in the model's own files.
// It dequantises to f32, with ggml's bits.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include "format/gguf/gguf_view.h"
#include "format/quantised_tensor.h"

namespace temper {

class BlockTensor : public QuantisedTensor {
 public:
  // `part`: a tensor of a GgufView. As OpenQuantised; null where it is not kept in blocks.
  static Result<std::unique_ptr<QuantisedTensor>> Open(const Part& part, const FindPart& find);

  const BlockDecoder& blocks() const { return *blocks_; }
  // The blocks of rows [first, first + rows), as they are stored. REQUIRES: `out` has their size.
  Status ReadBlocks(int64_t first, int64_t rows, std::span<std::byte> out) const {
    return file_.ReadBlocks(*parts_[0].tensor, first, rows, out);
  }
  Bytes bytes() const override { return blocks_->BytesOf(whole_.elements()); }
  Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const override;
  std::unique_ptr<Rows> OpenRows() const override;

 private:
  class Reader;
  BlockTensor(ElementFormat format, const GgufView& file, const Part& part);

  const GgufView& file_;
  const BlockDecoder* blocks_;
};

}  // namespace temper
