#include "data/document_reader.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <span>
#include <string_view>
#include <utility>

#include "base/utf8.h"
#include "data/encoding.h"

namespace temper {
namespace {

constexpr size_t kBuffer = 256 << 10;
constexpr size_t kLongestCharacter = 4;
constexpr size_t kLeast = 16;  // at most 4 bytes are held; a read needs room beside them

}  // namespace

DocumentReader::DocumentReader(std::unique_ptr<TextStream> stream)
    : stream_(std::move(stream)),
      buffer_(stream_->compressed() ? kBuffer : std::clamp(static_cast<size_t>(stream_->size().v), kLeast, kBuffer)) {}

Result<std::unique_ptr<DocumentReader>> DocumentReader::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto stream, TextStream::Open(env, path));
  return std::unique_ptr<DocumentReader>(new DocumentReader(std::move(stream)));
}

Result<bool> DocumentReader::Read(size_t size, std::string& text) {
  while (!ended_ && text.size() < size) {
    TEMPER_ASSIGN_OR_RETURN(const size_t n, stream_->Read(std::span(buffer_).subspan(held_)));
    ended_ = n == 0;
    TEMPER_RETURN_IF_ERROR(Take(held_ + n, text));
  }
  if (ended_ && blank_) return Corrupt(fmt::format("{} is empty: there is no text to train on", path()));
  return !ended_;
}

// Appends the first `size` bytes of the buffer, but for those that the next ones may complete.
Status DocumentReader::Take(size_t size, std::string& text) {
  std::string_view bytes(buffer_.data(), size);
  size_t valid = utf8::ValidPrefix(bytes);
  if (valid < size && (ended_ || size - valid >= kLongestCharacter)) {
    const auto line = line_ + std::count(bytes.begin(), bytes.begin() + static_cast<int64_t>(valid), '\n');
    return NotUtf8(bytes, valid, path(),
                   fmt::format("{} line {} (byte {})", path(), line, taken_ + static_cast<int64_t>(valid)));
  }
  if (!ended_ && valid > 0 && bytes[valid - 1] == '\r') --valid;  // a LF may follow
  const size_t begin = taken_ == 0 && bytes.substr(0, valid).starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0;
  for (size_t at = begin; at < valid;) {
    const size_t end = std::min(bytes.find("\r\n", at), valid);
    text += bytes.substr(at, end - at);
    at = end < valid ? end + 1 : end;  // its LF begins the next piece
  }
  line_ += std::count(bytes.begin() + static_cast<int64_t>(begin), bytes.begin() + static_cast<int64_t>(valid), '\n');
  blank_ = blank_ && bytes.substr(begin, valid - begin).find_first_not_of(" \t\r\n") == bytes.npos;
  taken_ += static_cast<int64_t>(valid);
  held_ = size - valid;
  std::memmove(buffer_.data(), buffer_.data() + valid, held_);
  return OkStatus();
}

}  // namespace temper
