// WeightSource: which tensors of a model's files hold a weight. A weight is one value of the graph. A file may hold
// several weights in one tensor (a fused projection, or the same of each matrix of a stack), interleave them head by
// head, hold them transposed, or hold one weight in several tensors (one per expert), or a stack of matrices, each of
// them transposed. The map goes both ways: loading, slicing, saving, merging and export follow it, so that files are
// written in the layout in which they were read. Pure data.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "tensor/shape.h"
#include "tensor/view.h"

namespace temper {

// A tensor in a file.
struct FileTensor {
  std::string name;                  // the name it is written under
  std::vector<std::string> aliases;  // other names a file may have it under (tied twins, older prefixes)
  Shape shape;
  // Of a stack of matrices, out x in, `<module>.<parameter>`: how other folders have each matrix, in a tensor for every
  // segment of its rows. Matrix i of mlp.experts.gate_up_proj may be mlp.experts.<i>.gate_proj.weight above
  // mlp.experts.<i>.up_proj.weight.
  struct Segment {
    std::string name;
    int64_t rows = 0;
    friend bool operator==(const Segment&, const Segment&) = default;
  };
  std::vector<Segment> matrices_as = {};
  friend bool operator==(const FileTensor&, const FileTensor&) = default;
};

class WeightSource {
 public:
  // `rows` of the weight's dim 0, whole in its other dims, are stored in a box of the tensor (or of its transpose) that
  // begins at `begin`. If the tensor has one dim less than the weight, a row is the whole box: rows == 1.
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
  // Groups of `rows` rows, from `first` on, one every `stride` rows: a segment that a file interleaves by head.
  static WeightSource StridedRows(FileTensor tensor, int64_t first, int64_t rows, int64_t stride, int64_t groups);
  // Runs of rows of a tensor's dim 0, each (first, rows), one after another.
  static WeightSource Runs(FileTensor tensor, std::span<const std::pair<int64_t, int64_t>> runs);
  // The tensor is a matrix of which columns [first, first + columns) are the weight's rows: it is stored in x out. Or
  // it stacks such matrices, of which [first, first + columns) are the weight's.
  static WeightSource Columns(FileTensor tensor, int64_t first, int64_t columns);
  // The tensor stacks matrices, and the weight has rows [first, ...) of each of them, as many as its dim 1.
  static WeightSource RowsOfEach(FileTensor tensor, int64_t first);
  // Row i is the whole of tensor i; all have the same shape.
  static WeightSource Stack(std::vector<FileTensor> tensors);

  const std::vector<FileTensor>& tensors() const { return tensors_; }
  const std::vector<Box>& boxes() const { return boxes_; }
  bool transposed() const { return transposed_; }
  // The same places in a tensor of another name. REQUIRES: there is one tensor.
  WeightSource InTensor(std::string name, std::vector<std::string> aliases = {}) const;

  // Where the rows of `part`, a part of the weight, are stored: boxes of the files' tensors, in the order of the part's
  // rows. Each view is that memory of part.view (null if it has none); its begin and global are the tensor's, or, where
  // `transposed`, those of its transpose, which is what lies in memory. An empty part has one empty box.
  struct FilePart {
    const FileTensor* tensor = nullptr;
    PartView part;
    bool transposed = false;
  };
  std::vector<FilePart> FileParts(const PartView& part) const;

 private:
  std::vector<FileTensor> tensors_;
  std::vector<Box> boxes_;  // one after another they are the weight's rows
  bool transposed_ = false;
};

// The value name of a weight or an adapter's matrix, and where it is stored.
struct StoredWeight {
  std::string name;
  Shape shape;
  WeightSource source;
};

// Every tensor that holds `weights`, once, in the order of first use.
std::vector<FileTensor> FileTensorsOf(std::span<const StoredWeight> weights);

}  // namespace temper
