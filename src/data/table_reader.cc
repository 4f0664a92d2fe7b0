#include "data/table_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>
#include <string_view>

#include "base/utf8.h"
#include "data/encoding.h"
#include "data/row_reader.h"
#include "format/json.h"
#include "format/json_text.h"
#include "format/quoted.h"

namespace temper {
namespace {

bool HoldsJson(std::string_view column) {
  for (const std::string_view name : {"messages", "conversations", "tools", "input_ids", "labels", "attention_mask",
                                      "history", "chat_template_kwargs"}) {
    if (column == name) return true;
  }
  return false;
}

// A number as JSON; a text that is none as a string, which the record then refuses.
void AppendNumber(std::string_view text, std::string& out) {
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error == std::errc() && end == text.data() + text.size() && std::isfinite(value)) {
    out += fmt::format("{}", value);
  } else {
    AppendJsonString(text, out);
  }
}

}  // namespace

Result<std::unique_ptr<TableReader>> TableReader::Open(TextCursor& text, char delimiter, Bytes max_row,
                                                       const RowColumns& columns) {
  std::unique_ptr<TableReader> reader(new TableReader(text, delimiter, max_row));
  TEMPER_RETURN_IF_ERROR(reader->ReadHeader(columns));
  return reader;
}

Status TableReader::ReadHeader(const RowColumns& columns) {
  RawRow header;
  TEMPER_ASSIGN_OR_RETURN(const bool any, ReadCells(header));
  if (!any) return Corrupt(fmt::format("{} is empty: it has no header and no rows", text_.path()));
  TEMPER_RETURN_IF_ERROR(header.error);
  const std::string place = text_.Place(header.line);
  if (count_ > kMaxColumns) {
    return Corrupt(fmt::format("{}: a header of {} columns, and at most {} are possible", place, count_, kMaxColumns));
  }
  columns_ = cells_;
  const char other = delimiter_ == ',' ? '\t' : ',';
  if (count_ == 1 && (columns_[0].find(';') != std::string::npos || columns_[0].find(other) != std::string::npos)) {
    return Corrupt(fmt::format("{}: the header is one column, {}: separate columns by {}", place, Quoted(columns_[0]),
                               delimiter_ == ',' ? "commas, or name the file .tsv if it has tabs"
                                                 : "tabs, or name the file .csv if it has commas"));
  }
  for (const std::string& name : columns_) {
    if (const size_t bad = utf8::ValidPrefix(name); bad < name.size()) return NotUtf8(name, bad, text_.path(), place);
  }
  std::set<std::string_view> names;
  for (const std::string& name : columns_) {
    if (name.empty() || names.insert(name).second) continue;
    return Corrupt(fmt::format("{}: the header has the column {} twice", place, Quoted(name)));
  }
  for (const std::string& name : columns_) {
    const bool leads_inside = std::any_of(columns.begin(), columns.end(), [&](const RowColumn& c) {
      return c.column.starts_with(name + ".") && !names.contains(c.column);
    });
    const auto field = std::find_if(columns.begin(), columns.end(), [&](const auto& c) { return c.column == name; });
    const std::string& meant = field == columns.end() ? name : field->field;
    kinds_.push_back(leads_inside || HoldsJson(meant) ? Cell::kJson : meant == "weight" ? Cell::kNumber : Cell::kText);
  }
  return OkStatus();
}

Result<bool> TableReader::ReadCells(RawRow& row) {
  enum class At { kBegin, kPlain, kQuoted, kQuoteOfQuoted } at = At::kBegin;
  row.text.clear();
  row.error = OkStatus();
  row.line = text_.line();
  cells_.resize(1);
  cells_[0].clear();
  count_ = 1;
  size_t bytes = 0;
  int64_t quote_line = 0;
  bool too_long = false;
  const auto add = [&](std::string_view piece) {
    bytes += piece.size();
    too_long = too_long || bytes > static_cast<size_t>(max_row_.v);
    if (!too_long && count_ <= kMaxColumns) cells_.back().append(piece);
  };
  for (;;) {
    TEMPER_RETURN_IF_ERROR(text_.Fill());
    const std::string_view unread = text_.unread();
    if (unread.empty() && at == At::kQuoted) {
      return Corrupt(
          fmt::format("{}: the quoted cell that begins here never ends: a quote is missing, or the file is truncated",
                      text_.Place(quote_line)));
    }
    const bool blank = count_ == 1 && at == At::kBegin;
    if (unread.empty() && blank) return false;
    const char c = unread.empty() ? '\n' : unread[0];
    if (at == At::kQuoted) {
      const size_t n = std::min(unread.find('"'), unread.size());
      add(unread.substr(0, n));
      text_.Advance(n);
      if (n == unread.size()) continue;
      at = At::kQuoteOfQuoted;
      text_.Skip();
      continue;
    }
    if (c == '\n' || c == '\r') {
      if (!unread.empty()) text_.Skip();
      if (c == '\r') {
        TEMPER_ASSIGN_OR_RETURN(const int next, text_.Peek());
        if (next == '\n') text_.Skip();
      }
      if (!blank) break;
      row.line = text_.line();
    } else if (c == delimiter_) {
      text_.Skip();
      at = At::kBegin;
      ++count_;
      if (count_ <= kMaxColumns) cells_.emplace_back();
    } else if (c == '"' && at == At::kBegin) {
      quote_line = text_.line();
      text_.Skip();
      at = At::kQuoted;
    } else if (c == '"' && at == At::kQuoteOfQuoted) {
      add("\"");
      text_.Skip();
      at = At::kQuoted;
    } else {
      if (at == At::kQuoteOfQuoted && row.error.ok()) {
        row.error =
            Corrupt(fmt::format("{}: text follows the closing quote of cell {}: a quote within a quoted cell is "
                                "written twice",
                                text_.Place(text_.line()), count_));
      }
      at = At::kPlain;
      const char ends[] = {delimiter_, '\n', '\r'};
      const size_t n = std::min(unread.find_first_of(std::string_view(ends, sizeof ends)), unread.size());
      add(unread.substr(0, n));
      text_.Advance(n);
    }
  }
  if (too_long) row.error = TooLong(text_.Place(row.line), max_row_);
  return true;
}

Result<bool> TableReader::Next(RawRow& row) {
  TEMPER_ASSIGN_OR_RETURN(const bool more, ReadCells(row));
  if (!more || !row.error.ok()) return more;
  if (count_ != columns_.size()) {
    row.error =
        Corrupt(fmt::format("{}: {} cells where the header has {} columns: put cells that hold a {} into quotes",
                            text_.Place(row.line), count_, columns_.size(), delimiter_ == ',' ? "comma" : "tab"));
    return true;
  }
  row.text = Object();
  return true;
}

std::string TableReader::Object() const {
  std::string out = "{";
  for (size_t i = 0; i < columns_.size(); ++i) {
    const std::string& name = columns_[i];
    const std::string& cell = cells_[i];
    const bool json = kinds_[i] == Cell::kJson, weight = kinds_[i] == Cell::kNumber;
    if (name.empty() || (cell.empty() && (json || weight))) continue;
    if (out.size() > 1) out += ", ";
    AppendJsonString(name, out);
    out += ": ";
    if (weight) {
      AppendNumber(cell, out);
    } else if (json && OrderedJson::accept(cell)) {
      out += cell;
    } else {
      AppendJsonString(cell, out);
    }
  }
  return out + "}";
}

}  // namespace temper
