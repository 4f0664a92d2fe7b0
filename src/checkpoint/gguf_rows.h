// GgufRowReader: the rows of one tensor as a GGUF file has them, in f32, read from the model's files with the adapter
// merged: parts behind each other, rows and columns in the file's order, turned, scaled.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "checkpoint/merged_weights.h"
#include "format/gguf/block_format.h"
#include "format/gguf/block_tensor.h"
#include "format/gguf/gguf_tensor.h"

namespace temper {

class GgufRowReader {
 public:
  // `tensor` and `weights` must outlive the reader.
  static Result<GgufRowReader> Open(MergedWeights& weights, const GgufTensor& tensor);

  // All dims but the last, whatever shape the file gives them; those of a vector are its elements.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Pieces begin at multiples of this, and are of whole multiples.
  int64_t row_step() const { return row_step_; }

  // `staging` as for TensorFile.
  Status Read(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;

  // Whether the base's file has the very blocks of this type, and nothing but the order of rows differs.
  bool IsStoredAs(const BlockFormat& format) const;
  // The blocks of these rows. REQUIRES: IsStoredAs; rows > 0.
  Status ReadBlocks(int64_t first, int64_t rows, std::span<std::byte> out) const;

 private:
  // Rows that follow each other in a tensor of the model's files.
  struct Segment {
    std::shared_ptr<const MergedWeights::Reader> reader;
    int64_t rows = 0, first = 0;                       // first: its row in the file; of a transposed one its column
    std::shared_ptr<const std::vector<float>> turned;  // all rows of a matrix that the file has transposed
    int64_t matrix = -1, elements = 0;    // of a file's stack: `first` is a row in that matrix, of so many numbers
    const BlockTensor* blocks = nullptr;  // what the base's file has of it, where nothing changes it
  };

  explicit GgufRowReader(const GgufTensor& tensor) : tensor_(&tensor) {}
  Status AddPart(MergedWeights& weights, const StoredWeight& part);
  void Measure();
  // Rows of the parts, one part after another.
  Status ReadParts(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;
  Status ReadRuns(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;
  void Reorder(int64_t rows, std::span<std::byte> out) const;
  void ReorderColumns(std::span<float> out) const;

  const GgufTensor* tensor_;
  int64_t rows_ = 0, columns_ = 0, row_step_ = 1;
  int64_t stored_columns_ = 0;  // of the parts
  std::vector<Segment> segments_;
};

}  // namespace temper
