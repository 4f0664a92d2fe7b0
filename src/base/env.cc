#include "base/env.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <new>
#include <utility>

#include <fmt/core.h>

#include "base/process_limits.h"

namespace temper {
namespace {

namespace fs = std::filesystem;

// Of one call: Linux caps a read or write at 2 GiB - 4 KiB.
constexpr size_t kMostAtOnce = size_t{1} << 30;

Status Errno(const std::string& what, const std::string& path, int error) {
  const std::string text = fmt::format("{} {}: {}", what, path, std::strerror(error));
  if (error == ENOENT) return NotFound(text);
  return IoError(text + LimitRemedy(error));
}

class PosixRandomAccessFile final : public RandomAccessFile {
 public:
  PosixRandomAccessFile(std::string path, int fd, const FileVersion& version)
      : path_(std::move(path)), fd_(fd), version_(version) {}
  ~PosixRandomAccessFile() override { close(fd_); }

  Status ReadAt(int64_t offset, std::span<std::byte> out) const override {
    size_t done = 0;
    while (done < out.size()) {
      const size_t want = std::min(out.size() - done, kMostAtOnce);
      const ssize_t got = pread(fd_, out.data() + done, want, offset + static_cast<int64_t>(done));
      if (got < 0) {
        if (errno == EINTR) continue;
        return Errno("cannot read", path_, errno);
      }
      if (got == 0) {
        return Corrupt(
            fmt::format("{} ends at byte {} but bytes {} to {} were expected: it is truncated; "
                        "fetch or copy it again",
                        path_, offset + static_cast<int64_t>(done), offset, offset + static_cast<int64_t>(out.size())));
      }
      done += static_cast<size_t>(got);
    }
    return OkStatus();
  }
  Bytes size() const override { return {version_.size}; }
  const std::string& path() const override { return path_; }
  FileVersion version() const override { return version_; }

 private:
  const std::string path_;
  const int fd_;
  const FileVersion version_;
};

Status WriteAll(int fd, std::span<const std::byte> data, const std::string& path) {
  size_t done = 0;
  while (done < data.size()) {
    const size_t want = std::min(data.size() - done, kMostAtOnce);
    const ssize_t put = write(fd, data.data() + done, want);
    if (put < 0) {
      if (errno == EINTR) continue;
      return Errno("cannot write", path, errno);
    }
    done += static_cast<size_t>(put);
  }
  return OkStatus();
}

class PosixWritableFile final : public WritableFile {
 public:
  PosixWritableFile(std::string path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PosixWritableFile() override {
    if (fd_ >= 0) close(fd_);
  }

  using WritableFile::Append;
  Status Append(std::span<const std::byte> data) override { return WriteAll(fd_, data, path_); }
  Status Sync() override { return fsync(fd_) == 0 ? OkStatus() : Errno("cannot sync", path_, errno); }
  Status Close() override {
    const int fd = fd_;
    fd_ = -1;
    return close(fd) == 0 ? OkStatus() : Errno("cannot close", path_, errno);
  }

 private:
  const std::string path_;
  int fd_;
};

// O_DIRECT takes whole blocks from aligned memory at aligned places of the file. Long data that lies so goes to the
// disk from where it is, with no copy; the rest is gathered in a buffer. What is no whole block at the end goes through
// the page cache, and so does everything after Hurry, or where the file system turns out to want something else.
class PosixDirectFile final : public WritableFile {
 public:
  // A disk reaches its full speed with pieces of kBuffer; those of kLong cost a call, but no more than their copy.
  static constexpr size_t kBlock = static_cast<size_t>(kDirectBlock), kBuffer = size_t{4} << 20, kLong = kBuffer / 8;

  PosixDirectFile(std::string path, int fd)
      : path_(std::move(path)), fd_(fd), buffer_(static_cast<std::byte*>(std::aligned_alloc(kBlock, kBuffer))) {
    if (buffer_ == nullptr) throw std::bad_alloc();
  }
  ~PosixDirectFile() override {
    std::free(buffer_);
    if (fd_ >= 0) close(fd_);
  }

  using WritableFile::Append;
  Status Append(std::span<const std::byte> data) override {
    while (!data.empty()) {
      if (direct_ && hurries_) TEMPER_RETURN_IF_ERROR(LeaveDirect());
      if (!direct_) return WriteAll(fd_, data, path_);
      const size_t to_block = (kBlock - filled_ % kBlock) % kBlock;  // of the file; the buffer's size is whole blocks
      const bool from_place =
          data.size() >= to_block + kLong && reinterpret_cast<uintptr_t>(data.data() + to_block) % kBlock == 0;
      Gather(&data, from_place ? to_block : kBuffer - filled_);
      if (filled_ == kBuffer || from_place) TEMPER_RETURN_IF_ERROR(WriteBuffer());
      if (!from_place) continue;
      const auto blocks = data.first(data.size() / kBlock * kBlock);
      data = data.subspan(blocks.size());
      TEMPER_RETURN_IF_ERROR(WriteBlocks(blocks));
    }
    return OkStatus();
  }
  Status Sync() override {
    if (direct_) TEMPER_RETURN_IF_ERROR(LeaveDirect());
    return fsync(fd_) == 0 ? OkStatus() : Errno("cannot sync", path_, errno);
  }
  Status Close() override {
    const Status left = direct_ ? LeaveDirect() : OkStatus();
    const int fd = fd_;
    fd_ = -1;
    if (close(fd) != 0 && left.ok()) return Errno("cannot close", path_, errno);
    return left;
  }
  void Hurry() override { hurries_ = true; }

 private:
  // Moves the first bytes of `data`, at most `limit`, into the buffer.
  void Gather(std::span<const std::byte>* data, size_t limit) {
    const size_t n = std::min(data->size(), limit);
    std::memcpy(buffer_ + filled_, data->data(), n);
    filled_ += n;
    *data = data->subspan(n);
  }
  // REQUIRES: it holds whole blocks.
  Status WriteBuffer() { return WriteBlocks({buffer_, std::exchange(filled_, 0)}); }

  // REQUIRES: whole blocks, the buffer is empty. Where the file system wants another alignment, or has written a part
  // of a block, the page cache takes the rest.
  Status WriteBlocks(std::span<const std::byte> blocks) {
    while (!blocks.empty()) {
      const ssize_t put = write(fd_, blocks.data(), std::min(blocks.size(), kMostAtOnce));
      if (put < 0 && errno == EINTR) continue;
      if (put < 0 && errno != EINVAL) return Errno("cannot write", path_, errno);
      if (put > 0) blocks = blocks.subspan(static_cast<size_t>(put));
      if (put <= 0 || blocks.size() % kBlock != 0) {
        TEMPER_RETURN_IF_ERROR(LeaveDirect());
        return WriteAll(fd_, blocks, path_);
      }
    }
    return OkStatus();
  }

  Status LeaveDirect() {
    const int flags = fcntl(fd_, F_GETFL);
    if (flags < 0 || fcntl(fd_, F_SETFL, flags & ~O_DIRECT) != 0) return Errno("cannot write", path_, errno);
    direct_ = false;
    return WriteAll(fd_, {buffer_, std::exchange(filled_, 0)}, path_);
  }

  const std::string path_;
  int fd_;
  std::byte* const buffer_;
  size_t filled_ = 0;
  bool direct_ = true, hurries_ = false;
};

class PosixFileLock final : public FileLock {
 public:
  explicit PosixFileLock(int fd) : fd_(fd) {}
  ~PosixFileLock() override { close(fd_); }

 private:
  const int fd_;
};

class PosixEnvironment final : public Env {
 public:
  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& path) override {
    // O_NONBLOCK: a pipe that nobody writes to would be waited for. Of no effect on files.
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0) return Errno("cannot open", path, errno);
    struct stat st = {};
    if (fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
      close(fd);
      return InvalidArgument(path + (S_ISDIR(st.st_mode) ? " is a folder, not a file"
                                     : S_ISFIFO(st.st_mode)
                                         ? " is a pipe, and files are read more than once: write what "
                                           "it gives into a file first"
                                         : " is not a regular file"));
    }
    return std::unique_ptr<RandomAccessFile>(std::make_unique<PosixRandomAccessFile>(path, fd, VersionOf(st)));
  }
  Result<std::string> ReadGenerated(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
    if (fd < 0) return Errno("cannot open", path, errno);
    std::string text;
    char piece[4096];
    ssize_t got = 0;
    while ((got = read(fd, piece, sizeof(piece))) > 0) text.append(piece, static_cast<size_t>(got));
    const int error = errno;
    close(fd);
    return got == 0 ? Result<std::string>(std::move(text)) : Errno("cannot read", path, error);
  }
  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& path, WriteMode mode) override {
    const int how = mode == WriteMode::kAppend ? O_APPEND : O_TRUNC;
    if (mode == WriteMode::kDirect) {
      const int direct = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_TRUNC | O_DIRECT, 0644);
      if (direct >= 0) return std::unique_ptr<WritableFile>(std::make_unique<PosixDirectFile>(path, direct));
      if (errno != EINVAL) return Errno("cannot create", path, errno);
    }
    const int fd = open(path.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | how, 0644);
    if (fd < 0) return Errno("cannot create", path, errno);
    return std::unique_ptr<WritableFile>(std::make_unique<PosixWritableFile>(path, fd));
  }
  Result<std::unique_ptr<BlockFile>> OpenBlocks(const std::string& path) override {
    return OpenPosixBlocks(path, /*direct=*/true);
  }
  Result<std::unique_ptr<BlockFile>> CreateUnlinked(const std::string& folder, Bytes size) override {
    return CreatePosixUnlinked(folder, size, /*direct=*/true);
  }
  Status Rename(const std::string& from, const std::string& to) override {
    return rename(from.c_str(), to.c_str()) == 0 ? OkStatus() : Errno("cannot rename " + from + " to", to, errno);
  }
  Status RemoveFile(const std::string& path) override {
    return unlink(path.c_str()) == 0 ? OkStatus() : Errno("cannot remove", path, errno);
  }
  Status RemoveTree(const std::string& path) override {
    std::error_code error;
    fs::remove_all(path, error);
    return error ? Errno("cannot remove", path, error.value()) : OkStatus();
  }
  Status CreateFolders(const std::string& path) override {
    std::vector<std::string> missing;
    for (std::string folder = path; !IsFolder(folder) && folder != FolderOf(folder); folder = FolderOf(folder)) {
      missing.push_back(folder);
    }
    std::error_code error;
    fs::create_directories(path, error);
    if (error) return Errno("cannot create folder", path, error.value());
    for (const std::string& folder : missing) TEMPER_RETURN_IF_ERROR(SyncFolder(FolderOf(folder)));
    return OkStatus();
  }
  Status SyncFolder(const std::string& path) override {
    const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0) return Errno("cannot open folder", path, errno);
    const int failed = fsync(fd) != 0 ? errno : 0;
    close(fd);
    return failed ? Errno("cannot sync folder", path, failed) : OkStatus();
  }
  Status Truncate(const std::string& path, int64_t size) override {
    return truncate(path.c_str(), size) == 0 ? OkStatus() : Errno("cannot truncate", path, errno);
  }
  Result<std::vector<std::string>> List(const std::string& folder) override {
    std::error_code error;
    std::vector<std::string> names;
    for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
      names.push_back(it->path().filename().string());
    }
    if (error) return Errno("cannot list folder", folder, error.value());
    std::sort(names.begin(), names.end());
    return names;
  }
  bool IsFile(const std::string& path) override {
    std::error_code error;
    return fs::is_regular_file(path, error);
  }
  bool IsFolder(const std::string& path) override {
    std::error_code error;
    return fs::is_directory(path, error);
  }
  Result<Bytes> FreeSpace(const std::string& folder) override {
    struct statvfs st;
    if (statvfs(folder.c_str(), &st) != 0) return Errno("cannot measure free space of", folder, errno);
    return Bytes{static_cast<int64_t>(st.f_bavail) * static_cast<int64_t>(st.f_frsize)};
  }
  Result<std::unique_ptr<FileLock>> Lock(const std::string& path) override {
    while (true) {
      const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
      if (fd < 0) return Errno("cannot create", path, errno);
      if (flock(fd, LOCK_EX | LOCK_NB) == 0) {
        // Who held the lock until now may have removed or renamed the file: another one may have its name.
        struct stat locked = {}, named = {};
        const bool same = fstat(fd, &locked) == 0 && stat(path.c_str(), &named) == 0 &&
                          std::pair(locked.st_dev, locked.st_ino) == std::pair(named.st_dev, named.st_ino);
        if (same) return std::unique_ptr<FileLock>(std::make_unique<PosixFileLock>(fd));
        close(fd);
        continue;
      }
      const int error = errno;
      close(fd);
      if (error == EWOULDBLOCK) return InUse(path + " is locked by another process");
      return std::unique_ptr<FileLock>();
    }
  }
};

}  // namespace

Result<std::string> Env::ReadGenerated(const std::string& path) {
  return ReadTextFile(*this, path);
}
Result<std::unique_ptr<BlockFile>> Env::OpenBlocks(const std::string& path) {
  return Unsupported(path + " is on no disk");
}
Result<std::unique_ptr<BlockFile>> Env::CreateUnlinked(const std::string& folder, Bytes) {
  return Unsupported(folder + " is on no disk");
}

Env& PosixEnv() {
  static PosixEnvironment* const env = new PosixEnvironment();
  return *env;
}

Result<std::string> ReadTextFile(Env& env, const std::string& path, Bytes limit) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  if (file->size() > limit) {
    return Corrupt(
        fmt::format("{} has {}, more than the {} such a file may have", path, ToString(file->size()), ToString(limit)));
  }
  std::string text(static_cast<size_t>(file->size().v), '\0');
  TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(text))));
  return text;
}

Status WriteTextFileAtomically(Env& env, const std::string& path, std::string_view text) {
  const std::string temporary = path + ".tmp";
  const auto write = [&]() -> Status {
    TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForWrite(temporary));
    TEMPER_RETURN_IF_ERROR(file->Append(text));
    TEMPER_RETURN_IF_ERROR(file->Sync());
    TEMPER_RETURN_IF_ERROR(file->Close());
    return env.Rename(temporary, path);
  };
  if (const Status written = write(); !written.ok()) {
    (void)env.RemoveFile(temporary);  // which may not even be there: what went wrong is said above
    return written;
  }
  return env.SyncFolder(FolderOf(path));
}

std::string JoinPath(std::string_view folder, std::string_view name) {
  return (fs::path(folder) / fs::path(name)).string();
}
std::string FolderOf(std::string_view path) {
  const std::string folder = fs::path(path).parent_path().string();
  return folder.empty() ? "." : folder;
}
std::string AbsolutePath(const std::string& path) {
  std::error_code no_working_folder;
  const fs::path whole = fs::absolute(path, no_working_folder);
  std::string text = (no_working_folder ? fs::path(path) : whole).lexically_normal().string();
  while (text.size() > 1 && text.back() == '/') text.pop_back();
  return text;
}
std::string BaseName(std::string_view path) {
  while (path.size() > 1 && path.back() == '/') path.remove_suffix(1);
  return fs::path(path).filename().string();
}

}  // namespace temper
