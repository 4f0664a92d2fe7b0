#include "disk/stored_slice.h"

#include <fmt/core.h>

#include <algorithm>
#include <optional>

#include "format/conversion.h"
#include "format/quoted.h"

namespace temper {
Result<std::vector<StoredSlice>> FindSlices(const ModelWeights::Entry& entry, const PartView& part) {
  const StoredTensor& tensor = *entry.tensor;
  const Shape &box = part.view.type.shape, &global = part.global;
  TEMPER_CHECK(global.elements() == tensor.elements() && box.rank() == global.rank())
      << tensor.ToString() << " as " << box.ToString() << " of " << global.ToString();
  const auto unsupported = [&](const std::string& why) {
    return Unsupported(
        fmt::format("{}: tensor {} cannot be read from its place: {}", entry.file->path(), Quoted(tensor.name), why));
  };
  if (part.view.type.dtype.quantised()) {
    return unsupported(fmt::format("it is kept as {}", ToString(part.view.type.dtype)));
  }
  if (entry.pieces != nullptr) return unsupported("it lies in several pieces");
  if (entry.quantised != nullptr) {
    return unsupported(fmt::format("it is stored as {}", ToString(entry.quantised->format())));
  }
  const std::optional<int64_t> place = entry.file->PlaceOf(tensor.name);
  if (!place) return unsupported("its elements are in another order there");
  TEMPER_ASSIGN_OR_RETURN(const TensorType type, tensor.type());
  const int64_t rows = part.rows(), at_once = part.is_one_run() ? std::max<int64_t>(rows, 1) : part.run_rows(),
                columns = part.columns(), size = SizeOf(type.dtype);
  if (at_once < rows && Bytes{at_once * columns * size} < kShortestRun) {
    return unsupported(fmt::format("the elements of {} of {} are not contiguous", box.ToString(), global.ToString()));
  }
  const DType as = part.view.type.dtype;
  if (type.dtype != as && !(IsFloating(type.dtype) && IsFloating(as))) {
    return unsupported(fmt::format("it is {}, which does not convert to {}", ToString(type.dtype), ToString(as)));
  }
  std::vector<StoredSlice> slices;
  for (int64_t r = 0; r < rows; r += at_once) {
    slices.push_back({.path = entry.file->path(),
                      .version = entry.file->version(),
                      .name = tensor.name,
                      .begin = *place + part.RowBegin(r) * size,
                      .elements = at_once * columns,
                      .stored = type.dtype,
                      .as = as});
  }
  return slices;
}

}  // namespace temper
