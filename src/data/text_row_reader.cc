#include "data/text_row_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "format/arrow/arrow_reader.h"
#include "format/data_file_name.h"
#include "format/parquet/parquet_footer.h"
#include "format/text_stream.h"

namespace temper {
namespace {

// The delimiter of a table, by its file's name; 0 if that is not a table's.
char TableDelimiter(std::string_view path) {
  const DataFileKind kind = KindOfDataFile(path);
  return kind == DataFileKind::kCommaTable ? ',' : kind == DataFileKind::kTabTable ? '\t' : '\0';
}

// Recognises non-text files by their first bytes; says what to do about them.
std::optional<std::string> ForeignFormat(std::string_view head, std::string_view path) {
  if (head.starts_with("\x1f\x8b") || head.starts_with("\x28\xb5\x2f\xfd")) {
    return "is compressed twice: unpack it once first";
  }
  if (head.starts_with(kParquetMagic)) return "is a packed Parquet file: unpack it first";
  if (head.starts_with(kArrowMagic) || head.starts_with(kArrowStreamMagic)) {
    return "is a packed Arrow file: unpack it first";
  }
  if (head.starts_with("PK\x03\x04")) {
    const bool sheet = path.ends_with(".xlsx") || path.ends_with(".ods");
    return sheet ? "is a spreadsheet: save it as CSV first" : "is a zip archive: unpack it first";
  }
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) {
    return "is UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)";
  }
  return std::nullopt;
}

}  // namespace

// Takes the bytes of one value. Looks only at structure: quotes, escapes, brackets, and the number of keys of an
// object; the parser checks the rest.
class TextRowReader::ValueScanner {
 public:
  // Objects keep the order of their keys (templates print them), which costs a search per insertion.
  static constexpr int kMaxKeys = 4096;
  static constexpr int kMaxDepth = 256;  // as ParseJson

  // Takes bytes up to the value's end; returns how many. Fewer than all: the value is complete, or the next byte does
  // not belong to it (a comma after a number).
  size_t Feed(std::string_view text) {
    size_t at = 0;
    while (at < text.size() && !complete_) {
      if (in_string_) {
        at = FeedString(text, at);
      } else if (!FeedStructure(text[at])) {
        break;
      } else {
        ++at;
      }
    }
    return at;
  }

  bool complete() const { return complete_; }
  bool in_string() const { return in_string_; }
  bool scalar() const { return depth_ == 0 && !complete_ && !in_string_; }
  Status Verdict(const std::string& place) const {
    if (too_deep_) return Corrupt(fmt::format("{}: JSON nested deeper than {} levels", place, kMaxDepth));
    if (too_wide_)
      return Corrupt(fmt::format("{}: an object of more than {} keys is too wide for a row of data", place, kMaxKeys));
    if (parts_ > kMaxRowParts) return TooManyParts(place);
    if (values_ >= kMaxRowValues) return TooManyValues(place);
    return OkStatus();
  }

 private:
  // Within a string, from byte `at` on: returns where it ends, or the text.
  size_t FeedString(std::string_view text, size_t at) {
    for (; at < text.size(); ++at) {
      if (escaped_) {
        escaped_ = false;
        continue;
      }
      const auto ends = [](char c) { return kEndsPlainText[static_cast<unsigned char>(c)]; };
      at = std::find_if(text.begin() + at, text.end(), ends) - text.begin();
      if (at == text.size()) break;
      if (text[at] == '"') {
        in_string_ = false;
        complete_ = depth_ == 0;
        return at + 1;
      }
      escaped_ = true;
    }
    return at;
  }
  // Outside of strings. False if `c` does not belong to the value.
  bool FeedStructure(char c) {
    switch (c) {
      case '"':
        in_string_ = true;
        ++parts_;
        break;
      case '{':
      case '[':
        ++parts_;
        if (++depth_ <= kMaxDepth) keys_[static_cast<size_t>(depth_)] = 0;
        too_deep_ |= depth_ > kMaxDepth;
        break;
      case '}':
      case ']':
        if (depth_ == 0) return false;
        complete_ = --depth_ == 0;
        break;
      case ':':
        if (depth_ > 0 && depth_ <= kMaxDepth) too_wide_ |= ++keys_[static_cast<size_t>(depth_)] > kMaxKeys;
        break;
      case ',':
        ++values_;
        [[fallthrough]];
      default:
        if (depth_ == 0 && (c == ',' || IsSpace(c))) return false;
    }
    return true;
  }

  static constexpr std::array<bool, 256> kEndsPlainText = [] {
    std::array<bool, 256> ends = {};
    ends['"'] = ends['\\'] = true;
    return ends;
  }();

  std::array<int, kMaxDepth + 1> keys_;  // by depth; each set where an object or a list begins
  int64_t parts_ = 0, values_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, complete_ = false, too_deep_ = false, too_wide_ = false;
};

Result<std::unique_ptr<RowReader>> TextRowReader::Open(std::unique_ptr<RandomAccessFile> file, Bytes max_row,
                                                       const RowColumns& columns) {
  TEMPER_ASSIGN_OR_RETURN(auto text, TextStream::Open(std::move(file)));
  std::unique_ptr<TextRowReader> reader(new TextRowReader(std::move(text), max_row));
  TEMPER_RETURN_IF_ERROR(reader->Probe(columns));
  return std::unique_ptr<RowReader>(std::move(reader));
}

// Decides the layout from the first value, reading no further than its end, and goes back to the beginning.
Status TextRowReader::Probe(const RowColumns& columns) {
  TEMPER_RETURN_IF_ERROR(text_.Fill());
  const std::string_view head = text_.unread().substr(0, 16);
  if (const auto foreign = ForeignFormat(head, path())) return Unsupported(fmt::format("{} {}", path(), *foreign));
  const int64_t start = head.starts_with(kByteOrderMark) ? static_cast<int64_t>(kByteOrderMark.size()) : 0;
  text_.Advance(static_cast<size_t>(start));
  TEMPER_ASSIGN_OR_RETURN(const int first, text_.PeekAfterSpace());
  if (first < 0) return Corrupt(fmt::format("{} is empty: it has no rows", path()));
  if (first != '{' && first != '[') {
    if (const char delimiter = TableDelimiter(path()); delimiter != '\0') {
      layout_ = RowLayout::kTable;
      TEMPER_RETURN_IF_ERROR(text_.Rewind(start));
      TEMPER_ASSIGN_OR_RETURN(table_, TableReader::Open(text_, delimiter, max_row_, columns));
      return OkStatus();
    }
    return Corrupt(
        fmt::format("{}: neither a JSON object nor a list begins here. Data is JSON lines (.jsonl), a "
                    "JSON list (.json), a table (.csv, .tsv, .parquet) or plain text (.txt)",
                    text_.Place(text_.line())));
  }
  const bool named_lines = KindOfDataFile(path()) == DataFileKind::kJsonLines;
  layout_ = first == '[' ? RowLayout::kArray : RowLayout::kLines;
  ValueScanner scanner;
  for (;;) {
    TEMPER_RETURN_IF_ERROR(text_.Fill());
    const std::string_view unread = text_.unread();
    if (unread.empty()) break;
    const std::string_view line = unread.substr(0, unread.find('\n'));
    const size_t taken = scanner.Feed(line);
    text_.Advance(taken);
    if (taken < line.size() && !scanner.complete()) break;
    if (scanner.complete()) {
      if (first == '[') {
        TEMPER_ASSIGN_OR_RETURN(const int next, text_.PeekAfterSpace());
        if (next >= 0 || named_lines) layout_ = RowLayout::kLines;  // each line is a list: a conversation per line
      }
      break;
    }
    if (taken == unread.size()) continue;
    // A raw line end inside a string is never valid: this is a broken line, so the layout is kLines.
    layout_ = scanner.in_string() ? RowLayout::kLines : first == '[' ? RowLayout::kArray : RowLayout::kValues;
    if (layout_ == RowLayout::kValues && named_lines) {
      // Is the first row cut off, or does it continue in the next line?
      text_.Skip();
      TEMPER_ASSIGN_OR_RETURN(const int next, text_.Peek());
      if (!IsSpace(next) && next != '"' && next != '}' && next != ']') layout_ = RowLayout::kLines;
    }
    break;
  }
  return text_.Rewind(start);
}

Result<bool> TextRowReader::NextLine(RawRow& row) {
  for (;;) {
    row.text.clear();
    row.error = OkStatus();
    row.line = text_.line();
    bool too_long = false, blank = true;
    ValueScanner scanner;
    bool scanning = true;
    for (;;) {
      TEMPER_RETURN_IF_ERROR(text_.Fill());
      const std::string_view unread = text_.unread();
      if (unread.empty()) {
        if (row.text.empty() && !too_long) return false;
        break;
      }
      const void* newline = std::memchr(unread.data(), '\n', unread.size());
      const size_t n = newline ? static_cast<size_t>(static_cast<const char*>(newline) - unread.data()) : unread.size();
      size_t begin = 0;
      while (blank && begin < n) {
        blank = IsSpace(unread[begin]);
        begin += blank ? 1 : 0;
      }
      if (begin < n && scanning) scanning = scanner.Feed(unread.substr(begin, n - begin)) == n - begin;
      if (row.text.size() + n > static_cast<size_t>(max_row_.v)) too_long = true;
      if (!too_long) row.text.append(unread.data(), n);
      text_.Advance(n);
      if (newline) {
        text_.Skip();
        break;
      }
    }
    if (blank) continue;
    if (too_long) {
      row.text.clear();
      row.error = TooLong(text_.Place(row.line), max_row_);
    } else {
      row.error = scanner.Verdict(text_.Place(row.line));
    }
    return true;
  }
}

// One value of an array or of a sequence; the next byte is its first.
Status TextRowReader::ReadValue(RawRow& row) {
  row.text.clear();
  row.error = OkStatus();
  row.line = text_.line();
  ValueScanner scanner;
  bool too_long = false;
  for (bool belongs = true; belongs && !scanner.complete();) {
    TEMPER_RETURN_IF_ERROR(text_.Fill());
    const std::string_view unread = text_.unread();
    if (unread.empty() && scanner.scalar() && !row.text.empty()) break;
    if (unread.empty()) {
      return Corrupt(
          fmt::format("{}: the row that begins here never ends: a bracket or quote is missing, or the file "
                      "is truncated",
                      text_.Place(row.line)));
    }
    const size_t taken = scanner.Feed(unread);
    belongs = taken == unread.size();
    if (row.text.size() + taken > static_cast<size_t>(max_row_.v)) too_long = true;
    if (!too_long) row.text += unread.substr(0, taken);
    text_.Advance(taken);
  }
  if (too_long) {
    row.text.clear();
    row.error = TooLong(text_.Place(row.line), max_row_);
  } else {
    row.error = scanner.Verdict(text_.Place(row.line));
  }
  return OkStatus();
}

Result<bool> TextRowReader::Next(RawRow& row) {
  row.number = ++rows_;
  if (layout_ == RowLayout::kLines) return NextLine(row);
  if (layout_ != RowLayout::kTable) return NextValue(row);
  TEMPER_ASSIGN_OR_RETURN(const bool more, table_->Next(row));
  if (!more || !row.error.ok()) return more;
  // A cell may hold JSON of any depth.
  ValueScanner scanner;
  scanner.Feed(row.text);
  row.error = scanner.Verdict(text_.Place(row.line));
  return true;
}

Result<bool> TextRowReader::NextValue(RawRow& row) {
  if (done_) return false;
  TEMPER_ASSIGN_OR_RETURN(int c, text_.PeekAfterSpace());
  if (layout_ == RowLayout::kValues) {
    if (c < 0) return false;
    if (c != '{' && c != '[')
      return Corrupt(fmt::format("{}: neither '{{' nor '[' begins a row here", text_.Place(text_.line())));
    TEMPER_RETURN_IF_ERROR(ReadValue(row));
    return true;
  }
  const bool first = !in_array_;
  if (first) {
    text_.Skip();  // the bracket that Probe saw
    in_array_ = true;
    TEMPER_ASSIGN_OR_RETURN(c, text_.PeekAfterSpace());
  }
  if (c == ']') {
    text_.Skip();
    done_ = true;
    TEMPER_ASSIGN_OR_RETURN(const int after, text_.PeekAfterSpace());
    if (after < 0) return false;
    return Corrupt(fmt::format("{}: text after the end of the list", text_.Place(text_.line())));
  }
  if (!first) {
    if (c != ',') {
      return Corrupt(fmt::format("{}: {} where ',' or ']' should follow a row", text_.Place(text_.line()),
                                 c < 0 ? "the file ends" : "something else"));
    }
    text_.Skip();
    TEMPER_ASSIGN_OR_RETURN(c, text_.PeekAfterSpace());
  }
  if (c < 0 || c == ',' || c == ']' || c == '}' || c == ':') {
    return Corrupt(fmt::format("{}: {} where a row should begin", text_.Place(text_.line()),
                               c < 0 ? std::string("the file ends") : fmt::format("'{}'", static_cast<char>(c))));
  }
  TEMPER_RETURN_IF_ERROR(ReadValue(row));
  return true;
}

}  // namespace temper
