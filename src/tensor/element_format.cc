#include "tensor/element_format.h"

#include <string>

#include "tensor/int8_rows.h"

namespace temper {

int64_t ElementFormat::RowBytes(int64_t columns) const {
  return quantised() ? Int8RowBytes(columns) : columns * SizeOf(dtype());
}

std::string_view ToString(ElementFormat f) {
  return f.quantised() ? "int8" : ToString(f.dtype());
}

Result<ElementFormat> ParseElementFormat(std::string_view text) {
  if (text == ToString(ElementFormat::Int8Rows())) return ElementFormat::Int8Rows();
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, ParseDType(text));
  return ElementFormat(dtype);
}

}  // namespace temper
