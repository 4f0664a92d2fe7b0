// Slices: the boxes that make up a checkpoint's tensor. Code to verify that they cover it, and to read any part of the
// tensor from them, however another run has cut it.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "format/safetensors.h"
#include "tensor/sharding.h"
#include "tensor/view.h"

namespace temper {

struct SlicedTensor {
  // The box [begin, begin + shape) is stored as tensor `stored_as` of safetensors file `file`.
  struct Slice {
    std::string file, stored_as;
    Shape begin, shape;
    std::string checksum;  // ChecksumHex of its bytes
  };

  std::string name;
  TensorType type;            // global
  std::vector<Slice> slices;  // disjoint, covering all of it: one, or one per rank that holds a part of its own
  // What it is of, where that is not what the checkpoint is of: "full" of a module that is trained beside adapters.
  std::string kind = {};
};

// Checks that the slices are disjoint, lie within the tensor and cover it. kCorrupt, naming tensor and slice. `where`
// names the file for the message.
Status CheckSlices(const SlicedTensor& tensor, const std::string& where);

// The open file that stores a slice, by name.
using SliceFiles = std::function<const SafetensorsFile&(const std::string& name)>;

// Takes the bytes of a part in runs of whole elements, in any order: `bytes` are those from byte `at` of the part on.
using PutBytes = std::function<Status(int64_t at, std::span<const std::byte> bytes)>;

// Gives all bytes of `part` to `put`, from the slices that overlap it, and reads no others; those are read whole, since
// their checksums cover all of them. Memory: 512 KiB. kCorrupt if a checksum differs; the bytes given to `put` are then
// undefined. REQUIRES: `part` is of this tensor, and CheckSlices was OK.
Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const Box& part, const PutBytes& put);
// The same for a part in memory.
Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const PartView& part);
// Reads all of them only to check their checksums.
Status VerifySlices(const SlicedTensor& tensor, const SliceFiles& files);

// `what` has another checksum than its manifest says.
Status ChecksumDiffers(const std::string& what, const std::string& found, const std::string& expected);

}  // namespace temper
