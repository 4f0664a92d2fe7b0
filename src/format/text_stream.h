// TextStream: the bytes of a file in order, unpacked if it is compressed with gzip or zstd. That is seen from the first
// bytes, not from the name. Several members or frames in one file are one text, as for gunzip and unzstd.
//
// Memory is bounded, whatever the file unpacks to: 64 KiB of the file, and gzip's window of 32 KiB or zstd's, of which
// those above 128 MiB (zstd --long=28 and more) are refused. Checksums are verified. One thread at a time.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"

namespace temper {

// Some programs begin a text in UTF-8 with this: it is no part of the text.
inline constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

class TextStream {
 public:
  static Result<std::unique_ptr<TextStream>> Open(Env& env, const std::string& path);
  static Result<std::unique_ptr<TextStream>> Open(std::unique_ptr<RandomAccessFile> file);
  virtual ~TextStream() = default;

  // Writes the next bytes to the beginning of `out` and returns how many; 0 at the end. Errors: the file cannot be
  // read; compressed data is cut off or damaged. REQUIRES: `out` is not empty.
  virtual Result<size_t> Read(std::span<char> out) = 0;
  virtual Status Rewind() = 0;  // to the beginning
  virtual bool compressed() const { return true; }
  virtual Bytes position() const = 0;           // bytes of the file that have been read
  Bytes size() const { return file_->size(); }  // of the file
  const std::string& path() const { return file_->path(); }

 protected:
  explicit TextStream(std::unique_ptr<RandomAccessFile> file) : file_(std::move(file)) {}

  const std::unique_ptr<RandomAccessFile> file_;
};

// The text of a whole file. Error: it has more than `limit`.
Result<std::string> ReadWholeText(Env& env, const std::string& path, Bytes limit);

}  // namespace temper
