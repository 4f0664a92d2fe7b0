#include "format/columnar_reader.h"

#include "base/utf8.h"

namespace temper {

bool RowText::TakesText(std::string_view text, bool must_be_text, const std::string& path) {
  ++parts_;
  if (text.size() > static_cast<size_t>(limits_.bytes.v)) {
    Break(RowFault::kTooLong);
    return false;
  }
  if (!must_be_text || utf8::IsValid(text)) return true;
  if (row_.fault == RowFault::kNone) row_.column = path;
  Break(RowFault::kNotUtf8);
  return false;
}

}  // namespace temper
