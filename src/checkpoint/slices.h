// Slices: the boxes of which a checkpoint's tensor is made up. What proves that they make up all of it, and what reads
// any part of the tensor out of them, however another run has cut it.
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
  // The box [begin, begin + shape) lies as tensor `stored_as` of safetensors file `file`.
  struct Slice {
    std::string file, stored_as;
    Shape begin, shape;
    std::string checksum;  // ChecksumHex of its bytes
  };

  std::string name;
  TensorType type;            // global
  std::vector<Slice> slices;  // disjoint, covering all of it: one, or one per rank that holds a part of its own
};

// The slices are disjoint, lie within the tensor and cover it. kCorrupt, naming tensor and slice. `where` names the
// file that says so.
Status CheckSlices(const SlicedTensor& tensor, const std::string& where);

// The open file that a slice lies in, by its name.
using SliceFiles = std::function<const SafetensorsFile&(const std::string& name)>;

// Takes the bytes of a part in runs of whole elements, in any order: `bytes` are those from byte `at` of the part on.
using PutBytes = std::function<Status(int64_t at, std::span<const std::byte> bytes)>;

// Gives all bytes of `part` to `put`, from the slices that have something of it, and reads no others; those are read
// whole, since their checksums are of all of them. Memory: 512 KiB. kCorrupt where a checksum differs; what `put` was
// given is then anything. REQUIRES: `part` is of this tensor, and CheckSlices was OK.
Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const Box& part, const PutBytes& put);
// The same for one in memory.
Status LoadSlices(const SlicedTensor& tensor, const SliceFiles& files, const PartView& part);
// Reads all of them for their checksums alone.
Status VerifySlices(const SlicedTensor& tensor, const SliceFiles& files);

// `what` has another checksum than its manifest says.
Status ChecksumDiffers(const std::string& what, const std::string& found, const std::string& expected);

}  // namespace temper
