// ElementFormat: how the elements of a stored tensor are kept. Either as numbers of a DType, one after another, or
// quantised: fewer bits and a scale that several elements share. Only kernels that name a quantised format read it
// (products with weights); everything else moves its bytes. Sizes follow from format and shape alone.
//
// A format has whole rows: a part of a tensor's rows is a part of its bytes. A part of the columns keeps its scales,
// which are those of the whole tensor, so that every mesh computes with the same numbers.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "base/status.h"
#include "tensor/dtype.h"

namespace temper {

class ElementFormat {
 public:
  constexpr ElementFormat() = default;
  constexpr ElementFormat(DType t) : kind_(static_cast<uint8_t>(t)) {}  // NOLINT(google-explicit-constructor)
  // 8-bit integers with one f32 scale per row (tensor/int8_rows.h).
  static constexpr ElementFormat Int8Rows() { return ElementFormat(kInt8Rows, 0); }
  // 4 bits, with a scale of 8 bits per 64 elements (tensor/nf4_rows.h).
  static constexpr ElementFormat Nf4() { return ElementFormat(kNf4, 0); }
  // Floats of 4 bits, with a power of two per 32 elements (tensor/mxfp4_rows.h).
  static constexpr ElementFormat Mxfp4() { return ElementFormat(kMxfp4, 0); }

  constexpr bool quantised() const { return kind_ >= kInt8Rows; }
  // REQUIRES: not quantised. The conversion lets code that knows no quantised format use a format as the DType that it
  // is.
  DType dtype() const {
    TEMPER_CHECK(!quantised()) << "a quantised format has no dtype";
    return static_cast<DType>(kind_);
  }
  operator DType() const { return dtype(); }  // NOLINT(google-explicit-constructor)
  // What kernels compute with.
  constexpr DType compute() const { return quantised() ? DType::kBF16 : static_cast<DType>(kind_); }
  // Of a row of so many elements.
  int64_t RowBytes(int64_t columns) const;
  // The number at `column` of a row of a quantised format, as kernels compute with it: the readable twin of their
  // readers.
  bf16 Number(const std::byte* row, int64_t columns, int64_t column) const;

  friend constexpr bool operator==(ElementFormat, ElementFormat) = default;
  friend constexpr auto operator<=>(ElementFormat, ElementFormat) = default;
  friend constexpr bool operator==(ElementFormat a, DType b) { return a == ElementFormat(b); }

 private:
  static constexpr uint8_t kInt8Rows = 0x80, kNf4 = 0x81, kMxfp4 = 0x82;
  constexpr ElementFormat(uint8_t kind, int) : kind_(kind) {}
  uint8_t kind_ = static_cast<uint8_t>(DType::kF32);  // a DType, or a quantised format
};

std::string_view ToString(ElementFormat f);                       // that of the DType, "int8", "nf4", "mxfp4"
Result<ElementFormat> ParseElementFormat(std::string_view text);  // the inverse

}  // namespace temper
