#include "data/text_cursor.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/check.h"

namespace temper {
namespace {

constexpr size_t kCursorBuffer = 256 << 10;
// A file's first bytes tell its format; a compressed one may give them in pieces of any size.
constexpr size_t kLeastCursorBuffer = 16;

}  // namespace

bool IsSpace(int c) {
  return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

TextCursor::TextCursor(std::unique_ptr<TextStream> stream)
    : stream_(std::move(stream)),
      buffer_(stream_->compressed()
                  ? kCursorBuffer
                  : std::clamp(static_cast<size_t>(stream_->size().v), kLeastCursorBuffer, kCursorBuffer)) {}

Status TextCursor::Fill() {
  if (begin_ < end_) return OkStatus();
  size_t size = 0;
  while (size < kLeastCursorBuffer) {
    const auto read = stream_->Read(std::span(buffer_).subspan(size));
    if (!read.ok() && !stream_->compressed()) return read.status();
    if (!read.ok()) {
      return Status(read.status().code(),
                    fmt::format("{} (its text breaks off in line {})", read.status().message(), line_));
    }
    if (*read == 0) break;
    size += *read;
  }
  if (size == 0) return OkStatus();
  first_buffer_ = first_buffer_ && end_ == 0;
  begin_ = 0;
  end_ = size;
  return OkStatus();
}

void TextCursor::Advance(size_t n) {
  TEMPER_CHECK(n <= end_ - begin_) << n << " bytes of " << end_ - begin_;
  const auto begin = buffer_.begin() + static_cast<int64_t>(begin_);
  line_ += std::count(begin, begin + static_cast<int64_t>(n), '\n');
  begin_ += n;
}

Result<int> TextCursor::Peek() {
  if (begin_ == end_) TEMPER_RETURN_IF_ERROR(Fill());
  return begin_ == end_ ? -1 : static_cast<int>(static_cast<unsigned char>(buffer_[begin_]));
}

Result<int> TextCursor::PeekAfterSpace() {
  for (;;) {
    TEMPER_ASSIGN_OR_RETURN(const int c, Peek());
    if (!IsSpace(c)) return c;
    Skip();
  }
}

Status TextCursor::Rewind(int64_t offset) {
  line_ = 1;
  if (first_buffer_ && static_cast<size_t>(offset) <= end_) {
    begin_ = static_cast<size_t>(offset);
    return OkStatus();
  }
  TEMPER_RETURN_IF_ERROR(stream_->Rewind());
  begin_ = end_ = 0;
  first_buffer_ = true;
  for (; offset > 0; --offset) {
    TEMPER_RETURN_IF_ERROR(Fill());
    Advance(1);
  }
  return OkStatus();
}

}  // namespace temper
