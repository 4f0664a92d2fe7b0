// OpenRows: the reader of a data file, chosen by the file's first bytes.
#pragma once

#include <memory>
#include <string>

#include "base/env.h"
#include "base/status.h"
#include "data/row_reader.h"
#include "format/row_columns.h"

namespace temper {

// `columns`: which of a table's columns hold which fields. Errors: the file cannot be opened, is empty, is damaged
// where it says what it holds, or has another format (UTF-16, not JSON).
Result<std::unique_ptr<RowReader>> OpenRows(Env& env, const std::string& path, Bytes max_row = RowReader::kMaxRow,
                                            const RowColumns& columns = {});

}  // namespace temper
