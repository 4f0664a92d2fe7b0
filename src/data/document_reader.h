// DocumentReader: a text file (format/data_file_name.h; compressed or not) as one document: without byte order mark,
// with LF for CRLF. One thread at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/env.h"
#include "base/status.h"
#include "format/text_stream.h"

namespace temper {

class DocumentReader {
 public:
  static Result<std::unique_ptr<DocumentReader>> Open(Env& env, const std::string& path);

  // Appends whole characters until `text` has at least `size` bytes, or the document ends: then false. Holds at
  // most 256 KiB beside it. Errors: the file cannot be read or unpacked, is not UTF-8, or, at its end, has nothing but
  // white space.
  Result<bool> Read(size_t size, std::string& text);

  Bytes bytes_read() const { return stream_->position(); }  // of the file
  const std::string& path() const { return stream_->path(); }

 private:
  explicit DocumentReader(std::unique_ptr<TextStream> stream);
  Status Take(size_t size, std::string& text);

  const std::unique_ptr<TextStream> stream_;
  std::vector<char> buffer_;
  size_t held_ = 0;    // bytes at the beginning of buffer_ that the next ones may complete
  int64_t taken_ = 0;  // bytes of the document before them
  int64_t line_ = 1;   // at which they are
  bool ended_ = false;
  bool blank_ = true;  // nothing but white space so far
};

}  // namespace temper
