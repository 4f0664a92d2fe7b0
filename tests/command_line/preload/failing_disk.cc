// Simulates a failing disk for an unchanged program: loaded before the C library (LD_PRELOAD), it replaces pread and
// pwrite. The environment says for which file and how:
//
//   FAIL_PATH   part of the file's path (or former path: a deleted file keeps its folder)
//   FAIL_ONCE   a path: calls fail once it exists
//   FAIL_CALL   "pread", "pwrite", "both"
//   FAIL_AS     "EIO", "ENOSPC", "ENODEV"; "short": no error, but half of the requested bytes
#include <dlfcn.h>
#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <string>

namespace {

const char* Setting(const char* name) {
  const char* const value = getenv(name);
  return value == nullptr ? "" : value;
}

bool IsMeant(const char* call, int fd) {
  const std::string which = Setting("FAIL_CALL");
  if (which != call && which != "both") return false;
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path) - 1);
  if (size <= 0) return false;
  path[size] = 0;
  return strstr(path, Setting("FAIL_PATH")) != nullptr && access(Setting("FAIL_ONCE"), F_OK) == 0;
}

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

template <class F>
F Next(const char* name) {
  return reinterpret_cast<F>(dlsym(RTLD_NEXT, name));
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
ssize_t pread(int fd, void* data, size_t size, off_t offset) {
  return pread64(fd, data, size, offset);
}
ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  return pwrite64(fd, data, size, offset);
}
}
