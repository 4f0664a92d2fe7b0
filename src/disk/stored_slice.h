// StoredSlice: contiguous elements of a tensor in a safetensors file, and the dtype they are read as. A region of the
// disk tier may be mapped onto one: the weights are then read from the model's own files, and a model larger than
// memory needs no second copy on the disk.
#pragma once

#include <string>

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

// Where the elements of `part` are stored (its memory is not used). kUnsupported
// if they are not contiguous in one file (a part of the columns, a tensor in
// pieces): its owner then copies them into the spill file once; and if the stored
// type does not convert. REQUIRES: part.global has as many elements as the tensor.
Result<StoredSlice> FindSlice(const ModelWeights::Entry& entry, const PartView& part);

}  // namespace temper
