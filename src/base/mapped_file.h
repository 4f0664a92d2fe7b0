// MappedFile: a file whose bytes are read where they are. All processes that map a file share its pages, which the
// system takes back when memory runs low. Also a buffer in memory, for data that has no file.
//
// Reading a mapped byte fails by a signal (SIGBUS) if the disk fails or the file has become shorter. ReadAt reports
// both as errors: check with it what must be checked. Any thread may read.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"

namespace temper {

class MappedFile final : public RandomAccessFile {
 public:
  static Result<std::unique_ptr<MappedFile>> Open(const std::string& path);
  static std::unique_ptr<MappedFile> OfBuffer(std::vector<std::byte> buffer);
  ~MappedFile() override;
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return bytes_; }
  // Takes the pages out of this process's memory; they stay in the page cache. Some microseconds, and one more for each
  // page that is read again.
  void LetGo() const;

  Status ReadAt(int64_t offset, std::span<std::byte> out) const override;
  Bytes size() const override { return {static_cast<int64_t>(bytes_.size())}; }
  const std::string& path() const override { return path_; }

 private:
  MappedFile() = default;

  std::string path_;
  std::unique_ptr<RandomAccessFile> file_;  // null: buffer_ is the content
  std::vector<std::byte> buffer_;
  std::span<const std::byte> bytes_;
};

}  // namespace temper
