// QuantisedTensor: a weight that a model's files have in a quantised format, in several tensors: its elements, its
// scales. ModelWeights has it as one tensor of numbers. Which formats there are, and how files name their parts, say
// their rules (tensor/format_rule.h); formats whose files are more than elements and scales have a class of their own.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "format/tensor_file.h"
#include "tensor/element_format.h"

namespace temper {

class QuantisedTensor {
 public:
  struct Part {
    const TensorFile* file = nullptr;
    const StoredTensor* tensor = nullptr;
  };
  // Tensors of the files by name, null pointers where absent; they outlive what is made of them.
  using FindPart = std::function<Part(const std::string& name)>;
  virtual ~QuantisedTensor() = default;
  QuantisedTensor(const QuantisedTensor&) = delete;
  QuantisedTensor& operator=(const QuantisedTensor&) = delete;

  ElementFormat format() const { return format_; }
  // What it dequantises to. Its name is that of the weight.
  const StoredTensor& whole() const { return whole_; }
  // As the files have it, the elements first; all are this weight's own.
  const std::vector<Part>& parts() const { return parts_; }
  // Of elements and scales.
  virtual Bytes bytes() const { return parts_[0].tensor->bytes() + parts_[1].tensor->bytes(); }

  // The elements that out.size() / SizeOf(target) values of whole(), from `first` on, dequantise to.
  virtual Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const = 0;
  // Whether whole() is the transpose, matrix by matrix, of what files and memory have.
  virtual bool transposed() const { return false; }
  // As ReadElementsAs, of the transpose of whole(). REQUIRES: transposed().
  virtual Status ReadTransposedAs(int64_t first, DType target, std::span<std::byte> out) const;

  // Makes rows of the format from what is stored, without rounding. For one thread.
  class Rows {
   public:
    virtual ~Rows() = default;
    // Rows [first, first + count) of those of all matrices, as memory has them, columns [begin, begin + columns).
    // kCorrupt where an element or a scale is no number. REQUIRES: `out` has RowBytes(columns) bytes for each.
    virtual Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) = 0;
  };
  virtual std::unique_ptr<Rows> OpenRows() const = 0;

 protected:
  explicit QuantisedTensor(ElementFormat format) : format_(format) {}

  ElementFormat format_;
  StoredTensor whole_;
  std::vector<Part> parts_;
};

}  // namespace temper
