// RawRow: the text of one row of a data file, as JSON, not parsed yet.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace temper {

struct RawRow {
  std::string text;
  int64_t number = 0;  // among the rows of its file, from 1; blank lines and a table's header do not count
  int64_t line = 0;    // of its first byte, from 1
  // Not OK: the row could not be cut out whole (too long, too deep); the reader is already past it.
  Status error;
};

}  // namespace temper
