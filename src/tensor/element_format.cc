#include "tensor/element_format.h"

#include <string>

#include "tensor/int8_rows.h"
#include "tensor/mxfp4_rows.h"
#include "tensor/nf4_rows.h"

namespace temper {

int64_t ElementFormat::RowBytes(int64_t columns) const {
  if (*this == Nf4()) return Nf4RowBytes(columns);
  if (*this == Mxfp4()) return Mxfp4RowBytes(columns);
  return quantised() ? Int8RowBytes(columns) : columns * SizeOf(dtype());
}

bf16 ElementFormat::Number(const std::byte* row, int64_t columns, int64_t column) const {
  if (*this == Nf4()) return Nf4Row(row, columns).Number(column);
  if (*this == Mxfp4()) return Mxfp4Row(row, columns).Number(column);
  TEMPER_CHECK(*this == Int8Rows()) << ToString(*this);
  return FromInt8(static_cast<int8_t>(row[column]), ReadScale(row + Int8ScaleAt(columns)));
}

std::string_view ToString(ElementFormat f) {
  if (f == ElementFormat::Nf4()) return "nf4";
  if (f == ElementFormat::Mxfp4()) return "mxfp4";
  return f.quantised() ? "int8" : ToString(f.dtype());
}

Result<ElementFormat> ParseElementFormat(std::string_view text) {
  for (const ElementFormat f : {ElementFormat::Int8Rows(), ElementFormat::Nf4(), ElementFormat::Mxfp4()}) {
    if (text == ToString(f)) return f;
  }
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, ParseDType(text));
  return ElementFormat(dtype);
}

}  // namespace temper
