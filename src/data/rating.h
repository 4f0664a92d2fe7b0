// Ratings: rows of one answer each that say whether it is one to give (TRL's unpaired preferences, for KTO). The rating
// is the field label or kto_tag, true or false; the rest of the row is a prompt and its completion, a question, an
// instruction or a conversation, whose last answer is meant.
#pragma once

#include <string>

#include "base/status.h"
#include "data/column_map.h"
#include "data/record.h"
#include "data/record_format.h"
#include "format/json.h"

namespace temper {

// The format of a row beside its rating. Errors name `where` and the field.
Result<RecordFormat> DetectRated(OrderedJson row, const std::string& where, const ColumnMap& columns);
// `row` read as `format`.
Result<Record> MakeRated(OrderedJson row, RecordFormat format, const std::string& where,
                         const std::string& separator = kParagraph);

}  // namespace temper
