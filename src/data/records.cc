#include "data/records.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "format/data_file_name.h"
#include "format/text_stream.h"

namespace temper {
namespace {

// At most this many broken rows before the first good one; with more it is some other kind of file.
constexpr int kDetectRows = 32;
// A document is tokenised in one piece. An English one of this size has 250 million tokens.
constexpr Bytes kMaxTextFile = GiB(1);

Result<std::string> ReadDocument(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(std::string text, ReadWholeText(env, path, kMaxTextFile));
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);
  if (text.find_first_not_of(" \t\r\n") == std::string::npos) {
    return Corrupt(fmt::format("{} is empty: there is no text to train on", path));
  }
  if (const size_t valid = utf8::ValidPrefix(text); valid < text.size()) {
    const auto line = 1 + std::count(text.begin(), text.begin() + static_cast<int64_t>(valid), '\n');
    return Corrupt(fmt::format("{} line {} (byte {}): not UTF-8. Convert the file first, e.g. iconv -f LATIN1 -t UTF-8",
                               path, line, valid));
  }
  size_t out = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    text[out++] = text[i];
  }
  text.resize(out);
  return text;
}

}  // namespace

Result<std::unique_ptr<RecordReader>> RecordReader::Open(Env& env, const std::string& path) {
  std::unique_ptr<RecordReader> reader(new RecordReader(path));
  if (KindOfDataFile(path) == DataFileKind::kText) {
    RawRow row{.number = 1, .line = 1};
    TEMPER_ASSIGN_OR_RETURN(row.text, ReadDocument(env, path));
    reader->format_ = RecordFormat::kTextFile;
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(path));
    reader->document_ = file->size();
    reader->seen_.push_back(std::move(row));
    return reader;
  }
  TEMPER_ASSIGN_OR_RETURN(reader->rows_, RowReader::Open(env, path));
  TEMPER_RETURN_IF_ERROR(reader->Detect());
  return reader;
}

namespace {

// Replaces NaN and Infinity, which Python writes but JSON lacks,
// by null, as other readers do. nullopt if there is none.
std::optional<std::string> WithoutNonFinite(std::string_view text) {
  if (text.find("NaN") == text.npos && text.find("Infinity") == text.npos) return std::nullopt;
  static constexpr std::array<std::string_view, 3> kNames = {"-Infinity", "Infinity", "NaN"};
  std::string out;
  bool in_string = false, changed = false;
  for (size_t i = 0; i < text.size();) {
    if (in_string && text[i] == '\\') {
      out += text.substr(i, 2);
      i += 2;
      continue;
    }
    in_string ^= text[i] == '"';
    const auto name = std::find_if(kNames.begin(), kNames.end(),
                                   [&](std::string_view n) { return !in_string && text.substr(i).starts_with(n); });
    if (name == kNames.end()) {
      out += text[i++];
      continue;
    }
    out += "null";
    i += name->size();
    changed = true;
  }
  return changed ? std::optional(std::move(out)) : std::nullopt;
}

Result<OrderedJson> ParseRow(std::string_view text, const std::string& where) {
  auto json = ParseOrderedJson(text, where);
  if (json.ok()) return json;
  const auto finite = WithoutNonFinite(text);
  if (!finite) return json;
  auto again = ParseOrderedJson(*finite, where);
  return again.ok() ? again : json;
}

}  // namespace

std::string RecordReader::Place(const RawRow& row) const {
  if (!rows_ || rows_->layout() == RowLayout::kLines) return fmt::format("line {}", row.line);
  return fmt::format("row {} (line {})", row.number, row.line);
}

std::string RecordReader::Where(const RawRow& row) const {
  return path_ + " " + Place(row);
}

Status RecordReader::Detect() {
  Status first_error;
  for (int n = 0; n < kDetectRows; ++n) {
    RawRow row;
    TEMPER_ASSIGN_OR_RETURN(const bool more, rows_->Next(row));
    if (!more) break;
    Status problem = row.error;
    bool known = false;
    if (problem.ok()) {
      const auto parsed = ParseRow(row.text, Where(row));
      problem = parsed.status();
      if (parsed.ok()) {
        const auto format = DetectFormat(*parsed, Where(row));
        problem = format.status();
        known = format.ok();
        if (known) format_ = *format;
        if (known) format_row_ = {.number = row.number, .line = row.line};
      }
    }
    seen_.push_back(std::move(row));
    if (known) return OkStatus();
    if (first_error.ok()) first_error = problem;
  }
  if (seen_.empty()) return Corrupt(fmt::format("{} has no rows", path_));
  return first_error;
}

Result<bool> RecordReader::Next(RawRow& row) {
  if (!seen_.empty()) {
    row = std::move(seen_.front());
    seen_.pop_front();
    return true;
  }
  if (!rows_) return false;
  return rows_->Next(row);
}

Result<Record> RecordReader::Parse(RawRow row) const {
  if (!row.error.ok()) return row.error;
  const std::string where = Where(row);
  if (format_ == RecordFormat::kTextFile) {
    return Record{.kind = RecordKind::kText, .where = path_, .text = std::move(row.text)};
  }
  TEMPER_ASSIGN_OR_RETURN(OrderedJson json, ParseRow(row.text, where));
  Result<Record> record = MakeRecord(std::move(json), format_, where);
  if (record.ok() || row.number == format_row_.number) return record;
  return Status(record.status().code(), fmt::format("{}. The file was read as {} because of its {}",
                                                    record.status().message(), FormatName(format_), format_place()));
}

}  // namespace temper
