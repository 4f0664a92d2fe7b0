// Simulates a failing disk for an unchanged program: loaded before the C library (LD_PRELOAD), it replaces system calls
// on files. The environment says for which file and how:
//
//   FAIL_PATH   part of the file's path (or former path: a deleted file keeps its folder)
//   FAIL_ONCE   a path: calls fail once it exists
//   FAIL_CALL   "pread", "pwrite", "both"; or "write", "fsync", "open" (that creates), "rename", "unlink", "mkdir",
//               "truncate"
//   FAIL_NTH    only this one of these calls fails, from 1, and says so on stderr; absent: all do
//   FAIL_AS     "EIO", "ENOSPC", "ENODEV"; "short": no error, but half of the requested bytes
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <string>

#include "next_call.h"

namespace {

// The call's replaced result; INT_MIN: continue with `*size` bytes.
constexpr ssize_t kGoOn = INT_MIN;
ssize_t Fail(size_t* size) {
  const std::string how = Setting("FAIL_AS");
  if (how == "short") {
    constexpr size_t kBlock = 4096;  // O_DIRECT transfers whole blocks
    if (*size >= 2 * kBlock) *size = *size / 2 / kBlock * kBlock;
    return kGoOn;
  }
  errno = how == "ENOSPC" ? ENOSPC : how == "ENODEV" ? ENODEV : EIO;
  return -1;
}

bool IsCall(const char* call) {
  const std::string which = Setting("FAIL_CALL");
  return which == call || (which == "both" && call[0] == 'p');
}

// REQUIRES: IsCall(call).
bool IsMeantOf(const char* call, const char* path) {
  if (strstr(path, Setting("FAIL_PATH")) == nullptr || access(Setting("FAIL_ONCE"), F_OK) != 0) return false;
  static std::atomic<long> calls = 0;
  const long nth = atol(Setting("FAIL_NTH"));
  if (nth == 0) return true;
  if (++calls != nth) return false;
  dprintf(STDERR_FILENO, "FAILED %s of %s\n", call, path);
  return true;
}

bool IsMeant(const char* call, int fd) {
  if (!IsCall(call)) return false;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return false;
  path[size] = 0;
  return IsMeantOf(call, path);
}

// Of a call that fails altogether; 0: it is to be made.
int FailPath(const char* call, const char* path) {
  size_t none = 0;
  return IsCall(call) && IsMeantOf(call, path) ? static_cast<int>(Fail(&none)) : 0;
}
int FailFile(const char* call, int fd) {
  size_t none = 0;
  return IsMeant(call, fd) ? static_cast<int>(Fail(&none)) : 0;
}

}  // namespace

extern "C" {
ssize_t pread64(int fd, void* data, size_t size, off64_t offset) {
  static const auto next = Next<ssize_t (*)(int, void*, size_t, off64_t)>("pread64");
  if (IsMeant("pread", fd)) {
    if (const ssize_t result = Fail(&size); result != kGoOn) return result;
  }
  return next(fd, data, size, offset);
}
ssize_t pwrite64(int fd, const void* data, size_t size, off64_t offset) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t, off64_t)>("pwrite64");
  if (IsMeant("pwrite", fd)) {
    if (const ssize_t result = Fail(&size); result != kGoOn) return result;
  }
  return next(fd, data, size, offset);
}
ssize_t write(int fd, const void* data, size_t size) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  if (IsMeant("write", fd)) {
    if (const ssize_t result = Fail(&size); result != kGoOn) return result;
  }
  return next(fd, data, size);
}
int fsync(int fd) {
  static const auto next = Next<int (*)(int)>("fsync");
  return FailFile("fsync", fd) != 0 ? -1 : next(fd);
}
int rename(const char* from, const char* to) {
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  return FailPath("rename", to) != 0 ? -1 : next(from, to);
}
int unlink(const char* path) {
  static const auto next = Next<int (*)(const char*)>("unlink");
  return FailPath("unlink", path) != 0 ? -1 : next(path);
}
int unlinkat(int folder, const char* path, int flags) {  // of whole trees
  static const auto next = Next<int (*)(int, const char*, int)>("unlinkat");
  return FailFile("unlink", folder) != 0 ? -1 : next(folder, path, flags);
}
int mkdir(const char* path, mode_t mode) {
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  return FailPath("mkdir", path) != 0 ? -1 : next(path, mode);
}
int truncate64(const char* path, off64_t size) {
  static const auto next = Next<int (*)(const char*, off64_t)>("truncate64");
  return FailPath("truncate", path) != 0 ? -1 : next(path, size);
}
int truncate(const char* path, off_t size) {
  return truncate64(path, size);
}
int open64(const char* path, int flags, ...) {
  static const auto next = Next<int (*)(const char*, int, mode_t)>("open64");
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);  // of no meaning without O_CREAT
  va_end(arguments);
  if ((flags & O_CREAT) != 0 && FailPath("open", path) != 0) return -1;
  return next(path, flags, mode);
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open64(path, flags, mode);
}
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return pread64(fd, data, size, offset);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}
}
