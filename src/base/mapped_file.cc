#include "base/mapped_file.h"

#include <fmt/core.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/process_limits.h"

namespace temper {

Result<std::unique_ptr<MappedFile>> MappedFile::Open(const std::string& path) {
  std::unique_ptr<MappedFile> out(new MappedFile());
  out->path_ = path;
  TEMPER_ASSIGN_OR_RETURN(out->file_, PosixFile::Open(path));
  const auto size = static_cast<size_t>(out->file_->size().v);
  if (size == 0) return out;
  void* const address = mmap(nullptr, size, PROT_READ, MAP_SHARED, out->file_->fd(), 0);
  if (address == MAP_FAILED) {
    const int error = errno;
    return IoError(fmt::format("cannot map {}: {}{}", path, std::strerror(error), LimitRemedy(error)));
  }
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
