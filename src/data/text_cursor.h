// TextCursor: reads a text byte by byte, or a buffer at a time, and counts lines. One thread at a time.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "format/text_stream.h"

namespace temper {

class TextCursor {
 public:
  explicit TextCursor(std::unique_ptr<TextStream> stream);

  // Makes unread() not empty unless the text ends. Error: as TextStream::Read, with the line.
  Status Fill();
  std::string_view unread() const { return {buffer_.data() + begin_, end_ - begin_}; }
  void Advance(size_t n);  // REQUIRES: that many are unread
  Result<int> Peek();      // the next byte, or -1 at the end
  void Skip() {            // REQUIRES: the last Peek gave a byte
    line_ += buffer_[begin_] == '\n';
    ++begin_;
  }
  Result<int> PeekAfterSpace();   // the next byte that is not white space
  Status Rewind(int64_t offset);  // to this byte of the text's first line

  Bytes bytes_read() const { return stream_->position(); }  // of the file, some of them not yet handed out
  int64_t line() const { return line_; }                    // of the next byte, from 1
  const std::string& path() const { return stream_->path(); }
  std::string Place(int64_t line) const { return path() + " line " + std::to_string(line); }

 private:
  const std::unique_ptr<TextStream> stream_;
  std::vector<char> buffer_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of buffer_
  bool first_buffer_ = true;    // buffer_ holds the beginning of the text
  int64_t line_ = 1;
};

// JSON's white space.
bool IsSpace(int c);

}  // namespace temper
