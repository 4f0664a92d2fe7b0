// StoredSlice: contiguous elements of a tensor in a safetensors file, and the dtype they are read as. A region of the
// disk tier may be mapped onto one: the weights are then read from the model's own files, and a model larger than
// memory needs no second copy on the disk.
#pragma once

#include <string>
#include <vector>

#include "base/status.h"
#include "format/model_weights.h"
#include "tensor/view.h"

namespace temper {

struct StoredSlice {
  std::string path;     // of the file
  FileVersion version;  // of the file whose header was read
  std::string name;     // of the tensor there
  int64_t begin = 0;    // bytes from the file's start
  int64_t elements = 0;
  DType stored = DType::kF32, as = DType::kF32;

  bool converts() const { return stored != as; }
  Bytes bytes() const { return {elements * SizeOf(as)}; }  // in memory, and in the tier's addresses
};

// Shorter runs of a tensor are not read from their places: each is a request to the disk.
inline constexpr Bytes kShortestRun = KiB(64);

// Where the elements of `part` are stored (its memory is not used): one slice after another, as many as there are
// stretches of it that are contiguous in the file, such as its rows of each matrix of a stack. kUnsupported if there
// are several and they are shorter than kShortestRun (a part of the columns), or the tensor is in pieces: its owner
// then copies the elements into the spill file once; and if the stored type does not convert. REQUIRES: part.global has
// as many elements as the tensor.
Result<std::vector<StoredSlice>> FindSlices(const ModelWeights::Entry& entry, const PartView& part);

}  // namespace temper
