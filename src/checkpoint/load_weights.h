// Loading a model's weights from a Hugging Face folder into the buffers of a Program: each tensor is read straight into
// its place, converted on the way to the compute dtype and, for trainable weights, to its f32 master copy. No tensor is
// held twice; of a tensor that is split among ranks, only this rank's part is read.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <vector>

#include "device/device_part.h"
#include "format/model_weights.h"
#include "format/weight_source.h"
#include "program/program.h"

namespace temper {

// Memory of the buffer with that name and the part of its tensor
// that it holds, or one without data if the Program has none.
using BufferLookup = std::function<DevicePart(const std::string& name)>;

// Reads `part` of a stored tensor, and no other bytes, converted to its dtype. `staging` as in TensorFile::ReadAs.
// REQUIRES: part.global is the tensor's shape or, if `transposed`, the shape of its transpose. A transposed part passes
// through a window of 1 MiB, or of one row if that is larger.
Status ReadPart(const ModelWeights::Entry& entry, const PartView& part, bool transposed, std::span<std::byte> staging);

// Where the tensor is stored, under any of its names; null pointers if it is not.
ModelWeights::Entry FindTensor(const ModelWeights& files, const FileTensor& tensor);

// Whether two stored tensors have the same shape and numbers; reads up to the first difference: 0.15 s of a core where
// both are 311 MB, bf16 and in the page cache.
Result<bool> HaveSameElements(const ModelWeights::Entry& a, const ModelWeights::Entry& b);

// Verifies from the headers alone, before any costly work, that LoadWeights will find all of `tensors`. Errors name
// tensor and file: missing (how many, and what is nearest to the first), wrong shape, not a floating type.
Status CheckTensors(const ModelWeights& files, std::span<const FileTensor> tensors);

// Fills the buffer of every weight, of its master if `buffer` has one, and of its second layout (RowPairsName). A
// buffer in a quantised format is quantised on the way (row_quantiser.h), a packed one is packed. Makes all checks of
// CheckTensors before it reads the first byte, against the buffers' shapes. `progress`, if set, is called after each
// tensor with (bytes done, bytes in all).
Status LoadWeights(const ModelWeights& files, std::span<const StoredWeight> weights, const BufferLookup& buffer,
                   const std::function<void(Bytes, Bytes)>& progress = nullptr);

// Whether a name ends with one of `ignored`, or has one that ends in a dot.
bool IsIgnored(std::string_view name, std::span<const std::string> ignored);

// Names in `files` that no tensor of the model has, sorted: worth a warning. Leaves out those that are
// `ignored`.
std::vector<std::string> UnusedTensors(const ModelWeights& files, std::span<const FileTensor> tensors,
                                       std::span<const std::string> ignored = {});

}  // namespace temper
