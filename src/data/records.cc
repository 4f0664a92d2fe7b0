#include "data/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "data/encoding.h"
#include "data/label.h"
#include "data/open_rows.h"
#include "data/pair.h"
#include "data/rating.h"
#include "data/role_map.h"
#include "data/template/conversation.h"
#include "format/python_json.h"

namespace temper {
namespace {

// At most this many broken rows before the first good one; with more it is some other kind of file.
constexpr int kDetectRows = 32;

}  // namespace

Result<std::unique_ptr<RecordReader>> RecordReader::Open(Env& env, const std::string& path, const RowReading& reading,
                                                         RowUse use) {
  std::unique_ptr<RecordReader> reader(new RecordReader(path, reading));
  TEMPER_ASSIGN_OR_RETURN(reader->rows_, OpenRows(env, path, RowReader::kMaxRow, reading.columns));
  reader->use_ = use;
  TEMPER_RETURN_IF_ERROR(reader->Detect(use));
  return reader;
}

namespace {

// NaN and Infinity become null, as in other readers of data.
std::string AsNull(std::string_view) {
  return "null";
}

Result<OrderedJson> ParseRow(std::string_view text, const std::string& path, const std::string& where) {
  auto json = ParseOrderedJson(text, where);
  if (json.ok()) return json;
  if (const size_t bad = utf8::ValidPrefix(text); bad < text.size()) return NotUtf8(text, bad, path, where);
  if (const auto finite = ReplaceNonFinite(text, AsNull)) {
    auto again = ParseOrderedJson(*finite, where);
    if (again.ok()) return again;
  }
  if (!IsPythonText(text)) return json;
  return Corrupt(where + ": a row as Python prints it, in single quotes, not JSON: write rows with json.dumps(row)");
}

}  // namespace

std::string RecordReader::Place(const RawRow& row) const {
  return PlaceOfRow(rows_->layout(), row);
}

std::string RecordReader::Where(const RawRow& row) const {
  return path_ + " " + Place(row);
}

namespace {

// Takes the margin out of a row; 0: it has none.
Result<float> TakeMargin(OrderedJson& row, const std::string& where) {
  const OrderedJson* found = FindValue(row, "margin");
  if (found == nullptr) return 0;
  if (!found->is_number()) {
    return Corrupt(fmt::format("{}: 'margin' should be a number but is {}", where, found->type_name()));
  }
  if (!std::isfinite(found->get<float>())) {
    return Corrupt(fmt::format("{}: 'margin' {} is too large: give at most 3e38", where, found->dump()));
  }
  const float margin = found->get<float>();
  row.erase("margin");
  return margin;
}

Result<Record> MakeRanked(OrderedJson row, RecordFormat format, const std::string& where,
                          const std::string& separator) {
  if (!row.is_object()) return MakeRecord(std::move(row), format, where, separator);
  TEMPER_ASSIGN_OR_RETURN(const float margin, TakeMargin(row, where));
  TEMPER_ASSIGN_OR_RETURN(Record record, MakeRecord(std::move(row), format, where, separator));
  record.margin = margin;
  return record;
}

// How rows of a use become records.
struct RecordRule {
  // What the fields of a row say that is an object.
  Result<RecordFormat> (*detect)(const OrderedJson& row, const std::string& where, const ColumnMap& columns);
  Result<Record> (*make)(OrderedJson row, RecordFormat format, const std::string& where, const std::string& separator);
};

Result<RecordFormat> DetectAnswers(const OrderedJson& row, const std::string& where, const ColumnMap& columns) {
  return DetectFormat(row, where, &columns);
}
Result<RecordFormat> DetectFields(const OrderedJson&, const std::string&, const ColumnMap&) {
  return RecordFormat::kFields;
}
Result<RecordFormat> DetectPairs(const OrderedJson& row, const std::string& where, const ColumnMap&) {
  if (HasPair(row)) return RecordFormat::kPair;
  return NoPair(row, where);
}
Result<RecordFormat> DetectRatings(const OrderedJson& row, const std::string& where, const ColumnMap& columns) {
  return DetectRated(row, where, columns);
}
template <RowUse use>
Result<RecordFormat> DetectSequences(const OrderedJson& row, const std::string& where, const ColumnMap& columns) {
  return DetectSequence(row, use, where, columns);
}
template <RowUse use>
Result<Record> MakeSequences(OrderedJson row, RecordFormat format, const std::string& where, const std::string&) {
  return MakeSequence(std::move(row), format, use, where);
}

const RecordRule& RuleOf(RowUse use) {
  static constexpr RecordRule kAnswers = {DetectAnswers, MakeRecord}, kFields = {DetectFields, MakeRecord},
                              kPairs = {DetectPairs, MakeRecord}, kRanked = {DetectPairs, MakeRanked},
                              kRated = {DetectRatings, MakeRated},
                              kLabels = {DetectSequences<RowUse::kLabels>, MakeSequences<RowUse::kLabels>},
                              kSequences = {DetectSequences<RowUse::kSequences>, MakeSequences<RowUse::kSequences>};
  switch (use) {
    case RowUse::kAnswers:
      break;
    case RowUse::kFields:
      return kFields;
    case RowUse::kPairs:
      return kPairs;
    case RowUse::kRanked:
      return kRanked;
    case RowUse::kRated:
      return kRated;
    case RowUse::kLabels:
      return kLabels;
    case RowUse::kSequences:
      return kSequences;
  }
  return kAnswers;
}

Result<RecordFormat> FormatFor(RowUse use, const OrderedJson& row, const std::string& where, const ColumnMap& columns) {
  return row.is_object() ? RuleOf(use).detect(row, where, columns) : DetectFormat(row, where, &columns);
}

}  // namespace

void RecordReader::Rename(OrderedJson& row) const {
  columns_.Apply(row);
  RenameRoles(reading_.roles, row);
}

Status RecordReader::Detect(RowUse use) {
  Status first_error;
  bool known = false, more = true;
  if (const auto* header = rows_->columns()) columns_.NoteHeader(*header);
  for (int n = 0; n < kDetectRows && !(known && columns_.found_all()); ++n) {
    RawRow row;
    TEMPER_ASSIGN_OR_RETURN(more, rows_->Next(row));
    if (!more) break;
    Status problem = row.error;
    if (problem.ok()) {
      const std::string where = Where(row);
      auto parsed = ParseRow(row.text, path_, where);
      problem = parsed.status();
      if (parsed.ok()) {
        columns_.NoteColumns(*parsed);
        Rename(*parsed);
      }
      if (parsed.ok() && !known) {
        const auto format = FormatFor(use, *parsed, where, columns_);
        problem = format.status();
        known = format.ok();
        if (known) format_ = *format;
        if (known) format_row_ = {.number = row.number, .line = row.line};
        if (known) parsed_format_row_ = std::move(*parsed);
      }
    }
    seen_.push_back(std::move(row));
    if (!known && first_error.ok()) first_error = std::move(problem);
  }
  if (!seen_.empty()) {
    const auto rows = more ? std::optional(seen_.size()) : std::nullopt;
    TEMPER_RETURN_IF_ERROR(columns_.CheckFound(path_, rows, /*needed_only=*/known && more));
  }
  if (known) return OkStatus();
  if (seen_.empty()) return Corrupt(fmt::format("{} has no rows", path_));
  return first_error;
}

Result<bool> RecordReader::Next(RawRow& row) {
  if (!seen_.empty()) {
    row = std::move(seen_.front());
    seen_.pop_front();
    return true;
  }
  return rows_->Next(row);
}

Result<Record> RecordReader::Parse(const RawRow& row) const {
  if (!row.error.ok()) return row.error;
  const std::string where = Where(row);
  const bool known = row.number == format_row_.number && parsed_format_row_.has_value();
  auto json = known ? Result<OrderedJson>(std::move(*parsed_format_row_)) : ParseRow(row.text, path_, where);
  if (known) parsed_format_row_.reset();
  if (!json.ok()) return json.status();
  if (!known) Rename(*json);
  Result<Record> record = RuleOf(use_).make(*std::move(json), format_, where, reading_.separator);
  if (record.ok()) return record;
  std::string message = record.status().message();
  if (!columns_.empty()) message += fmt::format(". Columns are read as {}", temper::ToString(columns_.columns()));
  if (row.number != format_row_.number) {
    message += fmt::format(". The file was read as {} because of its {}", FormatName(format_), format_place());
  }
  return Status(record.status().code(), std::move(message));
}

}  // namespace temper
