#include "format/row_scaled_tensor.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "format/conversion.h"
#include "format/numbers_of_rows.h"
#include "format/quoted.h"
#include "tensor/format_rule.h"
#include "tensor/int8_rows.h"

namespace temper {
namespace {

struct Ending {
  std::string_view scales, elements;  // of names, behind that of the module
  bool of_fp8, of_int8;
};
constexpr Ending kTensorNames[] = {{".weight_scale", ".weight", true, true},
                                   {".weight_scale_inv", ".weight", true, false},
                                   {".SCB", ".weight", false, true}};
constexpr char kOrder[] = ".weight_format";
// What may lie beside them: of kOrder only the value of plain rows, of the others nothing.
constexpr const char* kBeside[] = {kOrder, ".input_scale", ".input_zero_point", ".activation_scale"};

// bitsandbytes once stored elements in tiles of its kernels, too, in matrices of the same shape.
Status CheckOrder(const QuantisedTensor::Part& order) {
  if (order.tensor == nullptr) return OkStatus();
  const auto shown = [&] { return fmt::format("{}: tensor {}", order.file->path(), Quoted(order.tensor->name)); };
  if (order.tensor->dtype->name != "U8" || order.tensor->elements() != 1) {
    return Corrupt(shown() + " should be one number of 8 bits: get the model again");
  }
  std::byte value{};
  TEMPER_RETURN_IF_ERROR(order.file->ReadTensor(order.tensor->name, std::span(&value, 1)));
  if (value == std::byte{0}) return OkStatus();
  return Unsupported(
      fmt::format("{} is {}: the matrix is stored in tiles, and plain rows (0) are read. Save the model with a "
                  "bitsandbytes of today",
                  shown(), static_cast<int>(value)));
}

}  // namespace

RowScaledTensor::RowScaledTensor(ElementFormat format, const Part& elements, const Part& scales, float per_scale)
    : QuantisedTensor(format), per_scale_(per_scale) {
  whole_ = {.name = elements.tensor->name, .dtype = FindStoredDType("BF16"), .dims = elements.tensor->dims};
  whole_.end = whole_.elements() * SizeOf(DType::kBF16);
  parts_ = {elements, scales};
}

Result<std::unique_ptr<QuantisedTensor>> RowScaledTensor::Open(const Part& part, const FindPart& find) {
  const std::string& name = part.tensor->name;
  for (const Ending& ending : kTensorNames) {
    if (!name.ends_with(ending.scales)) continue;
    const std::string module = name.substr(0, name.size() - ending.scales.size());
    const Part elements = find(module + std::string(ending.elements));
    if (elements.tensor == nullptr || elements.tensor->dims.size() != 2) continue;
    const bool fp8 = elements.tensor->dtype->name == "F8_E4M3", int8 = elements.tensor->dtype->name == "I8";
    const auto& type = part.tensor->dtype->dtype;
    if (!(fp8 ? ending.of_fp8 : int8 && ending.of_int8) || !type || !IsFloating(*type)) continue;
    const int64_t rows = elements.tensor->dims[0], count = part.tensor->elements();
    const std::vector<int64_t>& s = part.tensor->dims;
    const bool of_rows = count == rows && (s.size() == 1 || s == std::vector<int64_t>{rows, 1});
    if (!of_rows && count != 1) {
      if (fp8 && s.size() == 2) continue;  // of blocks: format/scaled_tensor.h
      return Corrupt(fmt::format(
          "{}: tensors {} {} and {} {} should be a matrix and one scale, or one for each row: get the model again",
          part.file->path(), Quoted(elements.tensor->name), elements.tensor->ToString(), Quoted(name),
          part.tensor->ToString()));
    }
    if (elements.tensor->elements() == 0) continue;
    const ElementFormat format = int8 ? ElementFormat::Int8Rows() : *ParseElementFormat("fp8");
    const bool bitsandbytes = ending.scales == ".SCB";
    TEMPER_RETURN_IF_ERROR(CheckOrder(find(module + kOrder)));
    if (const Part zeros = find(module + ".weight_zero_point"); zeros.tensor != nullptr) {
      return Unsupported(
          fmt::format("{}: tensor {} shifts the elements of its weight, and symmetric ones are read: use "
                      "the original weights",
                      zeros.file->path(), Quoted(zeros.tensor->name)));
    }
    auto tensor =
        std::unique_ptr<RowScaledTensor>(new RowScaledTensor(format, elements, part, bitsandbytes ? 1.f / 127 : 1.f));
    for (const char* beside : kBeside) {
      if (const Part found = find(module + beside); found.tensor != nullptr) tensor->parts_.push_back(found);
    }
    return std::unique_ptr<QuantisedTensor>(std::move(tensor));
  }
  return std::unique_ptr<QuantisedTensor>();
}

class RowScaledTensor::Reader : public QuantisedTensor::Rows {
 public:
  explicit Reader(const RowScaledTensor& tensor) : t_(tensor) {}

  Status Read(int64_t first, int64_t count, int64_t begin, int64_t columns, std::byte* out) override {
    constexpr int64_t kAtOnce = 1 << 20;  // bytes
    const Part& elements = t_.parts_[0];
    const int64_t all = t_.whole_.dims[1], at_once = std::max<int64_t>(1, kAtOnce / all);
    TEMPER_RETURN_IF_ERROR(LoadScales());
    for (int64_t row = first; row < first + count; row += at_once) {
      const int64_t n = std::min(at_once, first + count - row);
      elements_.resize(static_cast<size_t>(n * all));
      TEMPER_RETURN_IF_ERROR(elements.file->ReadRange(elements.tensor->name, row * all, elements_));
      for (int64_t r = 0; r < n; ++r, out += t_.format_.RowBytes(columns)) {
        const float scale = scales_[scales_.size() == 1 ? 0 : static_cast<size_t>(row + r)];
        const auto kept = std::span<const std::byte>(elements_).subspan(static_cast<size_t>(r * all + begin),
                                                                        static_cast<size_t>(columns));
        if (Write(kept, scale, begin, out)) continue;
        return Corrupt(
            fmt::format("{}: tensor {} has an element or a scale that is no number in row {}: get the model "
                        "again",
                        elements.file->path(), Quoted(t_.whole_.name), row + r));
      }
    }
    return OkStatus();
  }

 private:
  Status LoadScales() {
    const Part& stored = t_.parts_[1];
    if (!scales_.empty()) return OkStatus();
    scales_.resize(static_cast<size_t>(stored.tensor->elements()));
    TEMPER_RETURN_IF_ERROR(
        stored.file->ReadAs(stored.tensor->name, DType::kF32, std::as_writable_bytes(std::span(scales_))));
    for (float& scale : scales_) scale *= t_.per_scale_;
    return OkStatus();
  }

  bool Write(std::span<const std::byte> elements, float scale, int64_t begin, std::byte* out) {
    const auto columns = static_cast<int64_t>(elements.size());
    if (t_.format_ != ElementFormat::Int8Rows()) {
      of_blocks_.assign(static_cast<size_t>((begin % 128 + columns) / 128 + 1), scale);
      return RuleOf(t_.format_).stored->write_row(elements, of_blocks_, begin, out);
    }
    std::copy(elements.begin(), elements.end(), out);
    std::memset(out + columns, 0, static_cast<size_t>(Int8ScaleAt(columns) - columns));
    std::memcpy(out + Int8ScaleAt(columns), &scale, sizeof scale);
    return std::isfinite(scale);
  }

  const RowScaledTensor& t_;
  std::vector<float> scales_, of_blocks_;
  std::vector<std::byte> elements_;
};

std::unique_ptr<QuantisedTensor::Rows> RowScaledTensor::OpenRows() const {
  return std::make_unique<Reader>(*this);
}

Status RowScaledTensor::ReadElementsAs(int64_t first, DType target, std::span<std::byte> out) const {
  Reader reader(*this);
  return ReadNumbersAs(reader, format_, whole_.dims[1], first, target, out);
}

}  // namespace temper
