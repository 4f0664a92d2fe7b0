#include "data/row_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <optional>
#include <string_view>

#include "format/quoted.h"

namespace temper {
namespace {

constexpr size_t kBuffer = 256 << 10;
constexpr std::string_view kUtf8Mark = "\xEF\xBB\xBF";

bool IsSpace(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

bool EndsWith(std::string_view text, std::string_view tail) {
  if (text.size() < tail.size()) return false;
  return std::equal(tail.begin(), tail.end(), text.end() - static_cast<int64_t>(tail.size()),
                    [](char a, char b) { return a == (b >= 'A' && b <= 'Z' ? b + 32 : b); });
}

// The command that converts a table to JSON lines; empty if the file's name is not a table's.
std::string CommandToJson(const std::string& path) {
  const bool tabs = EndsWith(path, ".tsv");
  if (!tabs && !EndsWith(path, ".csv")) return "";
  return fmt::format(
      "python3 -c 'import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(sys.stdin{})]' < {} > {}",
      tabs ? ", delimiter=\"\\t\"" : "", ShellWord(path), ShellWord(path.substr(0, path.size() - 4) + ".jsonl"));
}

// Recognises non-text files by their first bytes; says what to do about them.
std::optional<std::string_view> ForeignFormat(std::string_view head) {
  if (head.starts_with("\x1f\x8b")) return "is compressed with gzip: unpack it first (gunzip)";
  if (head.starts_with("\x28\xb5\x2f\xfd")) return "is compressed with zstd: unpack it first (unzstd)";
  if (head.starts_with("PAR1"))
    return "is a Parquet file: convert it to JSON lines first (pandas.read_parquet(FILE).to_json(OUT, "
           "orient=\"records\", lines=True))";
  if (head.starts_with("ARROW1")) return "is an Arrow file: convert it to JSON lines first";
  if (head.starts_with("PK\x03\x04")) return "is a zip archive: unpack it first";
  if (head.starts_with("\xff\xfe") || head.starts_with("\xfe\xff")) {
    return "is UTF-16: convert it first (iconv -f UTF-16 -t UTF-8)";
  }
  return std::nullopt;
}

}  // namespace

// Takes the bytes of one value, one by one. Looks only at structure: quotes, escapes, brackets, and the number of keys
// of an object; the parser checks the rest.
class RowReader::ValueScanner {
 public:
  // Objects keep the order of their keys (templates print them), which costs a search per insertion.
  static constexpr int kMaxKeys = 4096;
  static constexpr int kMaxDepth = 256;  // as ParseJson
  // Parsed, a value takes tens of bytes and a text of a conversation hundreds, however short they are in the file: with
  // these bounds a row takes some 300 MB beside a few times its own size. Three lists of a million tokens fit.
  static constexpr int kMaxValues = 4'000'000;
  static constexpr int kMaxParts = 1'000'000;  // texts, keys, lists and objects

  // False if `c` no longer belongs to the value (a comma after a number).
  bool Feed(char c) {
    if (complete_) return false;
    if (in_string_) {
      if (escaped_) {
        escaped_ = false;
      } else if (c == '\\') {
        escaped_ = true;
      } else if (c == '"') {
        in_string_ = false;
        complete_ = depth_ == 0;
      }
      return true;
    }
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

  bool complete() const { return complete_; }
  bool in_string() const { return in_string_; }
  bool scalar() const { return depth_ == 0 && !complete_ && !in_string_; }
  Status Verdict(const std::string& place) const {
    if (too_deep_) return Corrupt(fmt::format("{}: JSON nested deeper than {} levels", place, kMaxDepth));
    if (too_wide_)
      return Corrupt(fmt::format("{}: an object of more than {} keys is too wide for a row of data", place, kMaxKeys));
    if (parts_ > kMaxParts || values_ >= kMaxValues) {
      return Corrupt(fmt::format("{}: a row of more than {}: split it", place,
                                 parts_ > kMaxParts ? "a million texts, lists and objects" : "4 million values"));
    }
    return OkStatus();
  }

 private:
  std::array<int, kMaxDepth + 1> keys_{};
  int64_t parts_ = 0, values_ = 0;
  int64_t depth_ = 0;
  bool in_string_ = false, escaped_ = false, complete_ = false, too_deep_ = false, too_wide_ = false;
};

RowReader::RowReader(std::unique_ptr<RandomAccessFile> file, Bytes max_row)
    : file_(std::move(file)),
      path_(file_->path()),
      max_row_(max_row),
      buffer_(std::min(kBuffer, static_cast<size_t>(file_->size().v))) {}

Result<std::unique_ptr<RowReader>> RowReader::Open(Env& env, const std::string& path, Bytes max_row) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  std::unique_ptr<RowReader> reader(new RowReader(std::move(file), max_row));
  TEMPER_RETURN_IF_ERROR(reader->Probe());
  return reader;
}

std::string RowReader::Place(int64_t line) const {
  return fmt::format("{} line {}", path_, line);
}

Status RowReader::Fill() {
  if (begin_ < end_) return OkStatus();
  begin_ = end_ = 0;
  const int64_t left = file_->size().v - offset_;
  if (left <= 0) return OkStatus();
  const size_t n = std::min<size_t>(buffer_.size(), static_cast<size_t>(left));
  TEMPER_RETURN_IF_ERROR(file_->ReadAt(offset_, std::as_writable_bytes(std::span(buffer_.data(), n))));
  offset_ += static_cast<int64_t>(n);
  end_ = n;
  return OkStatus();
}

Result<int> RowReader::Peek() {
  if (begin_ == end_) TEMPER_RETURN_IF_ERROR(Fill());
  return begin_ == end_ ? -1 : static_cast<int>(static_cast<unsigned char>(buffer_[begin_]));
}

void RowReader::Skip() {
  if (buffer_[begin_] == '\n') ++line_;
  ++begin_;
}

Result<int> RowReader::PeekAfterSpace() {
  for (;;) {
    TEMPER_ASSIGN_OR_RETURN(const int c, Peek());
    if (!IsSpace(c)) return c;
    Skip();
  }
}

void RowReader::Rewind(int64_t offset) {
  begin_ = end_ = 0;
  offset_ = offset;
  line_ = 1;
}

// Decides the layout from the first value, reading no further than its end, and goes back to the beginning.
Status RowReader::Probe() {
  TEMPER_RETURN_IF_ERROR(Fill());
  const std::string_view head(buffer_.data(), std::min<size_t>(end_, 16));
  if (const auto foreign = ForeignFormat(head)) return Unsupported(fmt::format("{} {}", path_, *foreign));
  const int64_t start = head.starts_with(kUtf8Mark) ? static_cast<int64_t>(kUtf8Mark.size()) : 0;
  begin_ += static_cast<size_t>(start);
  TEMPER_ASSIGN_OR_RETURN(const int first, PeekAfterSpace());
  if (first < 0) return Corrupt(fmt::format("{} is empty: it has no rows", path_));
  if (first != '{' && first != '[') {
    if (const std::string command = CommandToJson(path_); !command.empty()) {
      return Unsupported(fmt::format("{} is a table, and Temper reads JSON lines: {}", path_, command));
    }
    return Corrupt(
        fmt::format("{} line {}: neither a JSON object nor a list begins here. Data is JSON lines (.jsonl), a "
                    "JSON list (.json) or plain text (.txt)",
                    path_, line_));
  }
  const bool named_lines = EndsWith(path_, ".jsonl") || EndsWith(path_, ".ndjson");
  layout_ = first == '[' ? RowLayout::kArray : RowLayout::kLines;
  ValueScanner scanner;
  for (;;) {
    TEMPER_ASSIGN_OR_RETURN(const int c, Peek());
    if (c < 0) break;
    // A raw line end inside a string is never valid: this is a broken line, so the layout is kLines.
    if (c == '\n') {
      layout_ = scanner.in_string() ? RowLayout::kLines : first == '[' ? RowLayout::kArray : RowLayout::kValues;
      if (layout_ == RowLayout::kValues && named_lines) {
        // Is the first row cut off, or does it continue in the next line?
        Skip();
        TEMPER_ASSIGN_OR_RETURN(const int next, Peek());
        if (!IsSpace(next) && next != '"' && next != '}' && next != ']') layout_ = RowLayout::kLines;
      }
      break;
    }
    if (!scanner.Feed(static_cast<char>(c))) break;
    Skip();
    if (!scanner.complete()) continue;
    if (first == '[') {
      TEMPER_ASSIGN_OR_RETURN(const int next, PeekAfterSpace());
      if (next >= 0 || named_lines) layout_ = RowLayout::kLines;  // each line is a list: a conversation per line
    }
    break;
  }
  Rewind(start);
  return OkStatus();
}

Result<bool> RowReader::NextLine(RawRow& row) {
  for (;;) {
    row.text.clear();
    row.error = OkStatus();
    row.line = line_;
    bool too_long = false, blank = true;
    ValueScanner scanner;
    bool scanning = true;
    for (;;) {
      TEMPER_RETURN_IF_ERROR(Fill());
      if (begin_ == end_) {
        if (row.text.empty() && !too_long) return false;
        break;
      }
      const char* data = buffer_.data() + begin_;
      const void* newline = std::memchr(data, '\n', end_ - begin_);
      const size_t n = newline ? static_cast<size_t>(static_cast<const char*>(newline) - data) : end_ - begin_;
      for (size_t i = 0; i < n; ++i) {
        if (blank && IsSpace(data[i])) continue;
        blank = false;
        if (!scanning) break;
        scanning = scanner.Feed(data[i]);
      }
      if (row.text.size() + n > static_cast<size_t>(max_row_.v)) too_long = true;
      if (!too_long) row.text.append(data, n);
      begin_ += n;
      if (newline) {
        Skip();
        break;
      }
    }
    if (blank) continue;
    if (too_long) {
      row.text.clear();
      row.error = Corrupt(fmt::format("{}: a row longer than {}: split it", Place(row.line), ToString(max_row_)));
    } else {
      row.error = scanner.Verdict(Place(row.line));
    }
    return true;
  }
}

// One value of an array or of a sequence; the next byte is its first.
Status RowReader::ReadValue(RawRow& row) {
  row.text.clear();
  row.error = OkStatus();
  row.line = line_;
  ValueScanner scanner;
  bool too_long = false;
  while (!scanner.complete()) {
    TEMPER_ASSIGN_OR_RETURN(const int c, Peek());
    if (c < 0 && scanner.scalar() && !row.text.empty()) break;
    if (c < 0) {
      return Corrupt(
          fmt::format("{}: the row that begins here never ends: a bracket or quote is missing, or the file "
                      "is truncated",
                      Place(row.line)));
    }
    if (!scanner.Feed(static_cast<char>(c))) break;
    if (row.text.size() >= static_cast<size_t>(max_row_.v)) too_long = true;
    if (!too_long) row.text.push_back(static_cast<char>(c));
    Skip();
  }
  if (too_long) {
    row.text.clear();
    row.error = Corrupt(fmt::format("{}: a row longer than {}: split it", Place(row.line), ToString(max_row_)));
  } else {
    row.error = scanner.Verdict(Place(row.line));
  }
  return OkStatus();
}

Result<bool> RowReader::Next(RawRow& row) {
  row.number = ++rows_;
  return layout_ == RowLayout::kLines ? NextLine(row) : NextValue(row);
}

Result<bool> RowReader::NextValue(RawRow& row) {
  if (done_) return false;
  TEMPER_ASSIGN_OR_RETURN(int c, PeekAfterSpace());
  if (layout_ == RowLayout::kValues) {
    if (c < 0) return false;
    if (c != '{' && c != '[') return Corrupt(fmt::format("{}: neither '{{' nor '[' begins a row here", Place(line_)));
    TEMPER_RETURN_IF_ERROR(ReadValue(row));
    return true;
  }
  const bool first = !in_array_;
  if (first) {
    Skip();  // the bracket that Probe saw
    in_array_ = true;
    TEMPER_ASSIGN_OR_RETURN(c, PeekAfterSpace());
  }
  if (c == ']') {
    Skip();
    done_ = true;
    TEMPER_ASSIGN_OR_RETURN(const int after, PeekAfterSpace());
    if (after < 0) return false;
    return Corrupt(fmt::format("{}: text after the end of the list", Place(line_)));
  }
  if (!first) {
    if (c != ',') {
      return Corrupt(fmt::format("{}: {} where ',' or ']' should follow a row", Place(line_),
                                 c < 0 ? "the file ends" : "something else"));
    }
    Skip();
    TEMPER_ASSIGN_OR_RETURN(c, PeekAfterSpace());
  }
  if (c < 0 || c == ',' || c == ']' || c == '}' || c == ':') {
    return Corrupt(fmt::format("{}: {} where a row should begin", Place(line_),
                               c < 0 ? std::string("the file ends") : fmt::format("'{}'", static_cast<char>(c))));
  }
  TEMPER_RETURN_IF_ERROR(ReadValue(row));
  return true;
}

}  // namespace temper
