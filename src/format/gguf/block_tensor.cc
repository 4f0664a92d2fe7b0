#include "format/gguf/block_tensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "format/quoted.h"

namespace temper {

BlockTensor::BlockTensor(ElementFormat format, const GgufView& file, const Part& part)
    : QuantisedTensor(format), file_(file), blocks_(file.BlocksOf(*part.tensor)) {
  whole_ = *part.tensor;
  parts_ = {part};
}

Result<std::unique_ptr<QuantisedTensor>> BlockTensor::Open(const Part& part, const FindPart& /*find*/) {
  const auto* const view = dynamic_cast<const GgufView*>(part.file);
  const BlockDecoder* const blocks = view == nullptr ? nullptr : view->BlocksOf(*part.tensor);
  if (blocks == nullptr) return std::unique_ptr<QuantisedTensor>();
  TEMPER_ASSIGN_OR_RETURN(const ElementFormat format, ParseElementFormat(blocks->name));
  return std::unique_ptr<QuantisedTensor>(new BlockTensor(format, *view, part));
}

class BlockTensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const BlockTensor& tensor) : t_(tensor) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    constexpr int64_t kAtOnce = 1 << 20;  // bytes
    const BlockDecoder& blocks = *t_.blocks_;
    const int64_t all = t_.whole_.dims[1], stored = blocks.BytesOf(all).v, row_bytes = t_.format_.RowBytes(columns);
    if (count == 0 || columns == 0) return OkStatus();
    const int64_t place = begin % blocks.elements;
    if (place != 0 && columns % blocks.elements == 0) {
      return Unsupported(fmt::format(
          "{}: tensor {}: columns {} to {} of it, in blocks of {}, begin within one: split it among fewer ranks",
          t_.file_.path(), Quoted(t_.whole_.name), begin, begin + columns, blocks.elements));
    }
    // The blocks that these columns touch.
    const int64_t from = begin / blocks.elements * blocks.bytes;
    const int64_t bytes = (place + columns + blocks.elements - 1) / blocks.elements * blocks.bytes;
    const bool in_place = bytes == stored && bytes == row_bytes;
    const int64_t at_once = std::max<int64_t>(1, kAtOnce / stored);
    for (int64_t row = first; row < first + count; row += at_once) {
      const int64_t n = std::min(at_once, first + count - row);
      rows_.resize(in_place ? 0 : static_cast<size_t>(n * stored));
      const std::span<std::byte> to = in_place ? std::span(out, static_cast<size_t>(n * stored)) : std::span(rows_);
      TEMPER_RETURN_IF_ERROR(t_.file_.ReadBlocks(*t_.parts_[0].tensor, row, n, to));
      for (int64_t r = 0; r < n; ++r, out += row_bytes) {
        const std::byte* const used = to.data() + r * stored + from;
        if (!blocks.IsFinite(used, bytes / blocks.bytes * blocks.elements)) {
          return Corrupt(fmt::format("{}: tensor {} has a scale that is no number in row {}: get the model again",
                                     t_.file_.path(), Quoted(t_.whole_.name), row + r));
        }
        if (in_place) continue;
        std::memcpy(out, used, static_cast<size_t>(bytes));
        std::memset(out + bytes, 0, static_cast<size_t>(row_bytes - bytes));
        if (place != 0) out[row_bytes - 1] = static_cast<std::byte>(place);
      }
    }
    return OkStatus();
  }

 private:
  const BlockTensor& t_;
  std::vector<std::byte> rows_;
};

std::unique_ptr<QuantisedTensor::Rows> BlockTensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status BlockTensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  return file_.ReadElementsAs(whole_.name, first, target, out);
}

}  // namespace temper
