#include "objective/objective.h"

#include <algorithm>

#include "base/check.h"

namespace temper {

ValueId Tail::Column(const ColumnSpec& column) const {
  const bool stated = std::any_of(rule.columns.begin(), rule.columns.end(), [&](const ColumnSpec& c) {
    return std::string_view(c.name) == column.name && c.dtype == column.dtype;
  });
  TEMPER_CHECK(stated) << "objective " << rule.name << " does not state its column " << column.name;
  return f.TokenInput(column.name, column.dtype, tokens);
}

}  // namespace temper
