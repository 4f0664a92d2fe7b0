#include "base/block_file.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/process_limits.h"

namespace temper {
namespace {

Status Failed(const std::string& what, const std::string& path, int error) {
  const std::string text = fmt::format("{} {}: {}", what, path, std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return NotFound(text);
  if (error == EIO)
    return IoError(text + ". The disk or its connection is failing: the system's log (dmesg) has details");
  return IoError(text + LimitRemedy(error));
}

// What O_DIRECT wants of this file's memory and offsets, where the kernel (6.1) and the file system say it.
struct DirectLimits {
  int64_t memory = BlockFile::kBlock, offset = BlockFile::kBlock;
};
DirectLimits LimitsOf(int fd) {
  DirectLimits limits;
#ifdef STATX_DIOALIGN
  struct statx s;
  if (statx(fd, "", AT_EMPTY_PATH, STATX_DIOALIGN, &s) == 0 && (s.stx_mask & STATX_DIOALIGN) != 0) {
    if (s.stx_dio_mem_align > 0) limits.memory = s.stx_dio_mem_align;
    if (s.stx_dio_offset_align > 0) limits.offset = s.stx_dio_offset_align;
  }
#else
  (void)fd;
#endif
  return limits;
}

class PosixBlockFile final : public BlockFile {
 public:
  // Of what `fd` was opened with; `direct` says whether that was O_DIRECT.
  PosixBlockFile(std::string path, int fd, bool direct, Bytes size) : path_(std::move(path)), fd_(fd), size_(size) {
    if (!direct) return;
    const DirectLimits limits = LimitsOf(fd);
    direct_ = true;
    memory_alignment_ = std::min(limits.memory, kBlock);
    if (limits.offset > kBlock || limits.memory > kBlock) (void)LeaveDirect();
  }
  ~PosixBlockFile() override { close(fd_); }

  Status ReadAt(int64_t offset, std::span<std::byte> out) override {
    CheckPlace(offset, out.data(), out.size());
    const auto length = static_cast<int64_t>(out.size());
    const int64_t wanted = std::min(length, size_.v - offset);  // the rest lies behind the file's end
    for (int64_t done = 0; done < wanted;) {
      const bool direct = direct_;
      const ssize_t got = pread(fd_, out.data() + done, static_cast<size_t>(length - done), offset + done);
      if (got < 0 && errno == EINTR) continue;
      if (got < 0 && errno == EINVAL && direct && LeaveDirect()) continue;
      if (got < 0) return Failed("cannot read", path_, errno);
      done += got;
      // Whole blocks are a read that was cut in parts; anything else is where the file ends.
      if (done < wanted && (got == 0 || done % kBlock != 0)) {
        return Corrupt(
            fmt::format("{} ends at byte {} and had {} when it was opened: it was truncated; fetch or copy it "
                        "again",
                        path_, offset + done, size_.v));
      }
    }
    if (!direct_) (void)posix_fadvise(fd_, offset, length, POSIX_FADV_DONTNEED);
    return OkStatus();
  }

  Status WriteAt(int64_t offset, std::span<const std::byte> data) override {
    CheckPlace(offset, data.data(), data.size());
    const auto length = static_cast<int64_t>(data.size());
    for (int64_t done = 0; done < length;) {
      const bool direct = direct_;
      const ssize_t put = pwrite(fd_, data.data() + done, static_cast<size_t>(length - done), offset + done);
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno == EINVAL && direct && LeaveDirect()) continue;
      if (put < 0) return Failed("cannot write", path_, errno);
      if (put == 0) return Failed("cannot write", path_, ENOSPC);
      done += put;
    }
    return direct_ ? OkStatus() : GiveBackWritten(offset, length);
  }

  Result<FileVersion> Version() const override {
    struct stat st;
    if (fstat(fd_, &st) != 0) return Failed("cannot look at", path_, errno);
    return VersionOf(st);
  }

  int64_t memory_alignment() const override { return memory_alignment_; }
  Bytes size() const override { return size_; }
  const std::string& path() const override { return path_; }

 private:
  void CheckPlace(int64_t offset, const void* data, size_t size) const {
    TEMPER_CHECK(offset >= 0 && offset % kBlock == 0 && size % kBlock == 0 &&
                 reinterpret_cast<uintptr_t>(data) % static_cast<uintptr_t>(memory_alignment_) == 0)
        << size << " bytes at byte " << offset << " of " << path_ << ", memory at " << data;
  }

  // From now on through the page cache. Several threads may come here at once: all do the same, and who sees direct_
  // unset sees the file's flag unset.
  bool LeaveDirect() {
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0 || fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) return false;
    direct_ = false;
    return true;
  }

  // Only clean pages can be given back: this waits for the disk, as a direct write would.
  Status GiveBackWritten(int64_t offset, int64_t length) {
    constexpr unsigned kWritten = SYNC_FILE_RANGE_WAIT_BEFORE | SYNC_FILE_RANGE_WRITE | SYNC_FILE_RANGE_WAIT_AFTER;
    if (sync_file_range(fd_, offset, length, kWritten) != 0 && (errno == EIO || errno == ENOSPC)) {
      return Failed("cannot write", path_, errno);
    }
    (void)posix_fadvise(fd_, offset, length, POSIX_FADV_DONTNEED);
    return OkStatus();
  }

  const std::string path_;
  const int fd_;
  const Bytes size_;
  int64_t memory_alignment_ = 1;
  std::atomic<bool> direct_ = false;
};

// A file without a name. Where the file system knows none, one whose name is gone before it holds a byte.
int OpenNameless(const std::string& folder) {
  const int fd = open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR && errno != EINVAL)) return fd;
  std::string name = folder + "/.temper-spill-XXXXXX";
  const int named = mkostemp(name.data(), O_CLOEXEC);
  if (named < 0) return named;
  if (unlink(name.c_str()) == 0) return named;
  const int error = errno;
  close(named);
  errno = error;
  return -1;
}

Status Reserve(int fd, const std::string& folder, Bytes size) {
  struct statvfs st;
  if (fstatvfs(fd, &st) != 0) return Failed("cannot measure free space of", folder, errno);
  const Bytes free{static_cast<int64_t>(st.f_bavail) * static_cast<int64_t>(st.f_frsize)};
  const auto too_little = [&](int error) {
    return IoError(fmt::format("cannot reserve {} in {}: {}; {} of its file system are free for this user",
                               ToString(size), folder, std::strerror(error), ToString(free)));
  };
  // Asked first: trying it would fill the disk for a moment, for everybody.
  if (free < size) return too_little(ENOSPC);
  if (size.v == 0 || fallocate(fd, 0, 0, size.v) == 0) return OkStatus();
  if (errno == ENOSPC || errno == EDQUOT || errno == EFBIG) return too_little(errno);
  if (errno != EOPNOTSUPP && errno != ENOSYS) return Failed("cannot make a file in", folder, errno);
  // The space cannot be reserved; it is free now.
  return ftruncate(fd, size.v) == 0 ? OkStatus() : Failed("cannot make a file in", folder, errno);
}

}  // namespace

FileVersion VersionOf(const struct ::stat& st) {
  return {st.st_dev, st.st_ino, st.st_size, int64_t{st.st_mtim.tv_sec} * 1'000'000'000 + st.st_mtim.tv_nsec};
}

Result<std::unique_ptr<BlockFile>> OpenPosixBlocks(const std::string& path, bool direct) {
  int fd = direct ? open(path.c_str(), O_RDONLY | O_CLOEXEC | O_DIRECT) : -1;
  const bool is_direct = fd >= 0;
  if (fd < 0 && (!direct || errno == EINVAL)) fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0) return Failed("cannot open", path, errno);
  struct stat st;
  if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    close(fd);
    return InvalidArgument(path + " is not a regular file");
  }
  return std::unique_ptr<BlockFile>(std::make_unique<PosixBlockFile>(path, fd, is_direct, Bytes{st.st_size}));
}

Result<std::unique_ptr<BlockFile>> CreatePosixUnlinked(const std::string& folder, Bytes size, bool direct) {
  const int fd = OpenNameless(folder);
  if (fd < 0) return Failed("cannot make a file in", folder, errno);
  const Bytes whole = AlignUp(size, BlockFile::kBlock);
  if (Status reserved = Reserve(fd, folder, whole); !reserved.ok()) {
    close(fd);
    return reserved;
  }
  const int flags = fcntl(fd, F_GETFL);
  const bool is_direct = direct && flags >= 0 && fcntl(fd, F_SETFL, flags | O_DIRECT) == 0;
  return std::unique_ptr<BlockFile>(std::make_unique<PosixBlockFile>(folder, fd, is_direct, whole));
}

}  // namespace temper
