// RowReader: cuts a JSON data file into the texts of its rows, in order, without parsing them.
//
// The layout is detected from the bytes, not from the file's name:
//   lines   one JSON value per line (.jsonl), blank lines ignored; a broken line costs that line only. A .jsonl file
//           whose first value is indented over several lines is "values" all the same
//   array   one JSON array whose elements are the rows (.json)
//   values  whole JSON values one after another, each over several lines (also a single pretty-printed row)
// A byte order mark and CRLF line ends are accepted. Memory is bounded by the longest row (at most `max_row`).
// One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"

namespace temper {

struct RawRow {
  std::string text;
  int64_t number = 0;  // among the rows of its file, from 1; blank lines do not count
  int64_t line = 0;    // of its first byte, from 1
  // Not OK: the row could not be cut out whole (too long, too deep); the reader is already past it.
  Status error;
};

enum class RowLayout : uint8_t { kLines, kArray, kValues };

class RowReader {
 public:
  // A row of 64 MiB is some 15 million tokens: too long to train on in one piece.
  static constexpr Bytes kMaxRow = MiB(64);

  // Errors: the file cannot be opened, is empty, or has another format (gzip, Parquet, UTF-16, not JSON).
  static Result<std::unique_ptr<RowReader>> Open(Env& env, const std::string& path, Bytes max_row = kMaxRow);

  // False after the last row. An error is final: the file cannot be read, or its array is broken so that the next row
  // cannot be found.
  Result<bool> Next(RawRow& row);

  Bytes bytes_read() const { return {offset_ - static_cast<int64_t>(end_ - begin_)}; }  // up to the next row
  RowLayout layout() const { return layout_; }
  const std::string& path() const { return path_; }

 private:
  // Finds the end of one JSON value, and whether it is too deep or too wide to parse.
  class ValueScanner;

  RowReader(std::unique_ptr<RandomAccessFile> file, Bytes max_row);

  Status Probe();
  Status Fill();                 // reads more bytes into the buffer; sets at_end_ if there are none
  Result<int> Peek();            // the next byte, or -1 at the end
  void Skip();                   // REQUIRES: the last Peek gave a byte
  Result<int> PeekAfterSpace();  // the next byte that is not white space
  void Rewind(int64_t offset);
  Result<bool> NextLine(RawRow& row);
  Result<bool> NextValue(RawRow& row);
  Status ReadValue(RawRow& row);
  std::string Place(int64_t line) const;

  const std::unique_ptr<RandomAccessFile> file_;
  const std::string path_;
  const Bytes max_row_;
  RowLayout layout_ = RowLayout::kLines;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of buffer_
  int64_t offset_ = 0;          // in the file, of the byte after the buffer's last
  int64_t line_ = 1;
  int64_t rows_ = 0;
  bool in_array_ = false;  // the opening bracket has been read
  bool done_ = false;
};

}  // namespace temper
