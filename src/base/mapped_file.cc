#include "base/mapped_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/process_limits.h"

namespace temper {

Result<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  constexpr int kMostTries = 100;
  std::unique_ptr<MappedFile> out(new MappedFile());
  out->path_ = path;
  const auto failed = [&](int error) {
    return IoError(fmt::format("cannot map {}: {}{}", path, std::strerror(error), LimitRemedy(error)));
  };
  // Once to read it and once to map it. Both must be the same file: another may have got its name in between.
  int fd = -1;
  bool same = false;
  for (int tries = 0; !same && tries < kMostTries; ++tries) {
    if (fd >= 0) close(fd);
    TEMPER_ASSIGN_OR_RETURN(out->file_, PosixEnv().OpenForRead(path));
    fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return failed(errno);
    struct stat st = {};
    same = fstat(fd, &st) == 0 && VersionOf(st) == out->file_->version();
  }
  const auto size = static_cast<size_t>(out->file_->size().v);
  void* const address = same && size > 0 ? mmap(nullptr, size, PROT_READ, MAP_SHARED, fd, 0) : nullptr;
  const int error = errno;
  close(fd);
  if (!same) return IoError(fmt::format("{} was replaced {} times while it was opened", path, kMostTries));
  if (address == MAP_FAILED) return failed(error);
  out->bytes_ = {static_cast<const std::byte*>(address), size};
  return out;
}

std::unique_ptr<MappedFile> MappedFile::OfBuffer(std::vector<std::byte> buffer) {
  std::unique_ptr<MappedFile> out(new MappedFile());
  out->path_ = "(memory)";
  out->buffer_ = std::move(buffer);
  out->bytes_ = out->buffer_;
  return out;
}

MappedFile::~MappedFile() {
  if (file_ && !bytes_.empty()) munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
}

void MappedFile::LetGo() const {
  if (file_ && !bytes_.empty()) (void)madvise(const_cast<std::byte*>(bytes_.data()), bytes_.size(), MADV_DONTNEED);
}

Status MappedFile::ReadAt(int64_t offset, std::span<std::byte> out) const {
  if (file_) return file_->ReadAt(offset, out);
  TEMPER_CHECK(offset >= 0 && static_cast<size_t>(offset) + out.size() <= bytes_.size()) << offset;
  std::copy_n(bytes_.begin() + offset, out.size(), out.begin());
  return OkStatus();
}

}  // namespace temper
