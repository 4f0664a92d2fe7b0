#include "disk/stored_slice.h"

#include <fmt/core.h>

#include "format/conversion.h"
#include "format/quoted.h"

namespace temper {
namespace {

// A box is one run of the row-major whole where all dims behind the first that it has a part of are whole, and all
// before have one index.
bool IsOneRun(const Shape& box, const Shape& global) {
  bool cut = false;  // a dim further in is not whole
  for (int d = global.rank(); d-- > 0;) {
    if (cut && box[d] != 1) return false;
    cut |= box[d] != global[d];
  }
  return true;
}

}  // namespace

Result<StoredSlice> FindSlice(const ModelWeights::Entry& entry, const PartView& part) {
  const StoredTensor& tensor = *entry.tensor;
  const Shape &box = part.view.type.shape, &global = part.global;
  TEMPER_CHECK(global.elements() == tensor.elements() && box.rank() == global.rank())
      << tensor.ToString() << " as " << box.ToString() << " of " << global.ToString();
  const auto unsupported = [&](const std::string& why) {
    return Unsupported(
        fmt::format("{}: tensor {} cannot be read from its place: {}", entry.file->path(), Quoted(tensor.name), why));
  };
  if (entry.pieces != nullptr) return unsupported("it lies in several pieces");
  if (!IsOneRun(box, global)) {
    return unsupported(
        fmt::format("the elements of {} of {} do not follow each other", box.ToString(), global.ToString()));
  }
  TEMPER_ASSIGN_OR_RETURN(const TensorType type, tensor.type());
  const DType as = part.view.type.dtype;
  if (type.dtype != as && !(IsFloating(type.dtype) && IsFloating(as))) {
    return unsupported(fmt::format("it is {}, which does not convert to {}", ToString(type.dtype), ToString(as)));
  }
  int64_t first = 0;
  for (int d = 0; d < global.rank(); ++d) first = first * global[d] + part.begin[d];
  return StoredSlice{.path = entry.file->path(),
                     .version = entry.file->version(),
                     .name = tensor.name,
                     .begin = entry.file->data_begin() + tensor.begin + first * SizeOf(type.dtype),
                     .elements = box.elements(),
                     .stored = type.dtype,
                     .as = as};
}

}  // namespace temper
