// PosixFile: PosixEnv's RandomAccessFile, with its descriptor, for those that map it.
#pragma once

#include <memory>
#include <string>

#include "base/env.h"

namespace temper {

class PosixFile final : public RandomAccessFile {
 public:
  // As Env::OpenForRead.
  static Result<std::unique_ptr<PosixFile>> Open(const std::string& path);
  ~PosixFile() override;
  PosixFile(const PosixFile&) = delete;
  PosixFile& operator=(const PosixFile&) = delete;

  int fd() const { return fd_; }
  Status ReadAt(int64_t offset, std::span<std::byte> out) const override;
  Bytes size() const override { return {version_.size}; }
  const std::string& path() const override { return path_; }
  FileVersion version() const override { return version_; }

 private:
  PosixFile(std::string path, int fd, const FileVersion& version)
      : path_(std::move(path)), fd_(fd), version_(version) {}

  const std::string path_;
  const int fd_;
  const FileVersion version_;
};

}  // namespace temper
