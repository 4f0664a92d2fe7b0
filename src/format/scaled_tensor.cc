#include "format/scaled_tensor.h"

#include <fmt/core.h>

#include <algorithm>

#include "format/conversion.h"
#include "format/numbers_of_rows.h"
#include "format/quoted.h"

namespace temper {
namespace {

int64_t Quotient(int64_t a, int64_t b) {  // rounded up
  return (a + b - 1) / b;
}

}  // namespace

ScaledTensor::ScaledTensor(const FormatRule& rule, const Part& elements, const Part& scales)
    : QuantisedTensor(FormatWith(rule)),
      stored_(*rule.stored),
      scales_of_row_(Quotient(elements.tensor->dims[1], stored_.block_columns)) {
  whole_ = {.name = elements.tensor->name, .dtype = FindStoredDType("BF16"), .dims = elements.tensor->dims};
  whole_.end = whole_.elements() * SizeOf(DType::kBF16);
  parts_ = {elements, scales};
}

Result<std::unique_ptr<QuantisedTensor>> ScaledTensor::Open(const Part& part, const FindPart& find) {
  for (const FormatRule* rule : FormatRules()) {
    if (rule->stored == nullptr) continue;
    const StoredFormat& stored = *rule->stored;
    for (const std::string_view ending : stored.scales) {
      const std::string& name = part.tensor->name;
      if (!name.ends_with(ending)) continue;
      const Part elements = find(name.substr(0, name.size() - ending.size()));
      if (elements.tensor == nullptr || elements.tensor->dtype->name != stored.elements) continue;
      const std::vector<int64_t>&e = elements.tensor->dims, &s = part.tensor->dims;
      const auto& dtype = part.tensor->dtype->dtype;
      // Scales of another kind (one for all, of a stack, powers of two): the tensors stay as they are stored.
      if (e.size() != 2 || s.size() != 2 || !dtype || !IsFloating(*dtype)) continue;
      const bool fit = elements.tensor->elements() > 0 && s[0] == Quotient(e[0], stored.block_rows) &&
                       s[1] == Quotient(e[1], stored.block_columns);
      if (!fit) {
        return Corrupt(fmt::format(
            "{}: tensors {} {} and {} {} should be a matrix in {} and a scale for each block of {} x {} of it: get the "
            "model again",
            part.file->path(), Quoted(elements.tensor->name), elements.tensor->ToString(), Quoted(name),
            part.tensor->ToString(), rule->title, stored.block_rows, stored.block_columns));
      }
      return std::unique_ptr<QuantisedTensor>(new ScaledTensor(*rule, elements, part));
    }
  }
  return std::unique_ptr<QuantisedTensor>();
}

// Remembers the scales of the last row of blocks.
class ScaledTensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const ScaledTensor& tensor) : t_(tensor), scales_(static_cast<size_t>(tensor.scales_of_row_)) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    constexpr int64_t kAtOnce = 1 << 20;  // bytes of the file
    const Part &elements = t_.parts_[0], &scales = t_.parts_[1];
    const StoredFormat& stored = t_.stored_;
    const int64_t all = t_.whole_.dims[1], at_once = std::max<int64_t>(1, kAtOnce / all);
    // Whole rows are one run of the file.
    const auto used = std::span<const float>(scales_).subspan(static_cast<size_t>(begin / stored.block_columns));
    for (int64_t row = first; row < first + count; row += at_once) {
      const int64_t n = std::min(at_once, first + count - row);
      elements_.resize(static_cast<size_t>(n * all));
      TEMPER_RETURN_IF_ERROR(elements.file->ReadRange(elements.tensor->name, row * all, elements_));
      for (int64_t r = 0; r < n; ++r, out += t_.format_.RowBytes(columns)) {
        if (const int64_t block = (row + r) / stored.block_rows; block != block_) {
          TEMPER_RETURN_IF_ERROR(scales.file->ReadElementsAs(scales.tensor->name, block * t_.scales_of_row_,
                                                             DType::kF32, std::as_writable_bytes(std::span(scales_))));
          block_ = block;
        }
        const auto kept = std::span<const std::byte>(elements_).subspan(static_cast<size_t>(r * all + begin),
                                                                        static_cast<size_t>(columns));
        if (stored.write_row(kept, used, begin, out)) continue;
        return Corrupt(
            fmt::format("{}: tensor {} has an element or a scale that is no number in row {}: get the model "
                        "again",
                        elements.file->path(), Quoted(t_.whole_.name), row + r));
      }
    }
    return OkStatus();
  }

 private:
  const ScaledTensor& t_;
  std::vector<float> scales_;
  int64_t block_ = -1;
  std::vector<std::byte> elements_;
};

std::unique_ptr<QuantisedTensor::Rows> ScaledTensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status ScaledTensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  Reader reader(*this);
  return ReadNumbersAs(reader, format_, whole_.dims[1], first, target, out);
}

}  // namespace temper
