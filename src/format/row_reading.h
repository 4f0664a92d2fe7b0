// RowReading: how the rows of a data file are read where they are not as Temper expects them: which columns hold their
// fields, what their speakers are called, what stands between the fields that a prompt is made of. A value type.
#pragma once

#include <string>

#include "format/row_columns.h"
#include "format/row_roles.h"

namespace temper {

inline constexpr const char* kParagraph = "\n\n";

struct RowReading {
  RowColumns columns = {};
  RowRoles roles = {};
  std::string separator = kParagraph;  // between instruction, input and context of a prompt

  bool operator==(const RowReading&) const = default;
};

// "columns prompt=frage; roles user=customer": what is not as by default; empty: nothing.
inline std::string ToString(const RowReading& reading) {
  std::string text = reading.columns.empty() ? "" : "columns " + ToString(reading.columns);
  if (!reading.roles.empty()) text += (text.empty() ? "roles " : "; roles ") + ToString(reading.roles);
  return text;
}

}  // namespace temper
