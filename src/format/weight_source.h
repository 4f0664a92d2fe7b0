// WeightSource: in which tensors of a model's files a weight lies. A weight is one value of the graph; a file may hold
// several in one tensor (a fused projection), interleave them head by head, or hold one weight in several tensors (one
// per expert). The map goes both ways: what loads, slices, saves, merges and exports follows it, so that what is
// written has the layout of what was read. Pure data.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "tensor/shape.h"
#include "tensor/view.h"

namespace temper {

// A tensor as a file holds it.
struct FileTensor {
  std::string name;                  // that is written
  std::vector<std::string> aliases;  // other names a file may have it under (tied twins, older prefixes)
  Shape shape;
  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};

class WeightSource {
 public:
  // `rows` of the weight's dim 0, whole in its other dims, lie in a box of the tensor that begins at `begin`. Where the
  // tensor has one dim less than the weight, a row is all of the box: rows == 1.
  struct Box {
    size_t tensor = 0;
    int64_t rows = 0;
    Shape begin;
  };

  WeightSource() = default;
  // All of one tensor.
  explicit WeightSource(FileTensor tensor);
  // Rows [first, first + rows) of a tensor's dim 0.
  static WeightSource Rows(FileTensor tensor, int64_t first, int64_t rows);
  // Groups of `rows` rows, one at `first` and one more every `stride` rows: a segment that a file interleaves by head.
  static WeightSource StridedRows(FileTensor tensor, int64_t first, int64_t rows, int64_t stride, int64_t groups);
  // Row i is the whole of tensor i, of which all have the same shape.
  static WeightSource Stack(std::vector<FileTensor> tensors);

  const std::vector<FileTensor>& tensors() const { return tensors_; }
  const std::vector<Box>& boxes() const { return boxes_; }

  // Where the rows of `part`, a part of the weight, lie: boxes of the files' tensors, in the order of the part's rows.
  // Each view is that memory of part.view (null where it has none), its begin and global are the tensor's. An empty
  // part has one empty box.
  struct FilePart {
    const FileTensor* tensor = nullptr;
    PartView part;
  };
  std::vector<FilePart> FileParts(const PartView& part) const;

 private:
  std::vector<FileTensor> tensors_;
  std::vector<Box> boxes_;  // one after another they are the weight's rows
};

// A weight, or an adapter's matrix, by the name of its value, and where it lies.
struct StoredWeight {
  std::string name;
  Shape shape;
  WeightSource source;
};

// Every tensor that `weights` lie in, once, in the order of their first use.
std::vector<FileTensor> FileTensorsOf(std::span<const StoredWeight> weights);

}  // namespace temper
