// Rows that are judged as a whole: a text (text, sentence), a conversation (messages, conversations) or tokens
// (input_ids), with its class: label, or labels, a text or a whole number.
#pragma once

#include <string>

#include "base/status.h"
#include "data/record.h"
#include "data/record_format.h"
#include "format/json.h"

namespace temper {

// `use` is kLabels, or kSequences, for which a label may be missing. Errors name `where` and the field.
Result<RecordFormat> DetectSequence(OrderedJson row, RowUse use, const std::string& where, const ColumnMap& columns);
Result<Record> MakeSequence(OrderedJson row, RecordFormat format, RowUse use, const std::string& where);

}  // namespace temper
