// Simulates a loss of power for an unchanged program: loaded before the C library (LD_PRELOAD), it counts the calls
// that change files below a folder. At the chosen one it takes back what no fsync has made durable, as the worst disk
// would lose it, and kills the process. Deletions are durable at once. The environment says:
//
//   POWER_PATH   the folder
//   POWER_NTH    the call at which the power goes, from 1. If the program makes fewer, it goes when the program ends
//   POWER_NAMES  "lost": new and renamed entries of folders that were not synced since are gone; "kept": these survive,
//                and only the data of files that were not synced is gone
//
// One process. A file that is renamed over another is not brought back with its old content, only with its own.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <map>
#include <mutex>
#include <string>
#include <vector>

#include "next_call.h"

namespace {

namespace fs = std::filesystem;

std::string PathOf(int fd) {
  char link[64], path[PATH_MAX];
  snprintf(link, sizeof(link), "/proc/self/fd/%d", fd);
  const ssize_t size = readlink(link, path, sizeof(path));
  return size > 0 ? std::string(path, static_cast<size_t>(size)) : "";
}

std::string Absolute(const char* path) {
  std::error_code error;
  return fs::absolute(path, error).lexically_normal().string();
}

std::string FolderOf(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

class Disk {
 public:
  static Disk& Get() {
    static Disk* const disk = new Disk();
    return *disk;
  }

  bool Holds(const std::string& path) const { return !root_.empty() && (path + "/").starts_with(root_ + "/"); }

  // Before each call that changes something at `path`.
  void Count(const std::string& path) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (++calls_ != nth_) return;
    Lose("at " + path);
    kill(getpid(), SIGKILL);
    while (true) pause();
  }
  // The program's exit code is its own.
  void End() {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    if (!root_.empty()) Lose("after the end");
  }
  void Wrote(int fd, const std::string& path) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    struct stat st = {};
    if (fstat(fd, &st) == 0 && S_ISREG(st.st_mode)) unsynced_.emplace(path, st.st_size);
  }
  void Synced(const std::string& path) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    unsynced_.erase(path);
    std::erase_if(entries_, [&](const Entry& e) { return FolderOf(e.path) == path; });
  }
  void Made(const std::string& path) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    entries_.push_back({path, ""});
  }
  void Renamed(const std::string& from, const std::string& to) {
    const std::lock_guard<std::recursive_mutex> lock(mutex_);
    std::map<std::string, off_t> moved;
    for (const auto& [path, size] : unsynced_) {
      const bool inside = (path + "/").starts_with(from + "/");
      moved.emplace(inside ? to + path.substr(from.size()) : path, size);
    }
    unsynced_ = std::move(moved);
    entries_.push_back({to, from});
  }

 private:
  struct Entry {
    std::string path, from;  // from: empty if it was made
  };

  Disk() : nth_(atol(Setting("POWER_NTH"))), keeps_names_(strcmp(Setting("POWER_NAMES"), "kept") == 0) {
    if (*Setting("POWER_PATH") != '\0') root_ = Absolute(Setting("POWER_PATH"));
  }

  void Lose(const std::string& when) {
    for (const auto& [path, size] : unsynced_) (void)::truncate(path.c_str(), size);
    std::error_code error;
    for (size_t i = entries_.size(); i-- > 0 && !keeps_names_;) {
      const Entry& e = entries_[i];
      if (e.from.empty()) {
        fs::remove_all(e.path, error);
      } else {
        fs::rename(e.path, e.from, error);
      }
    }
    dprintf(STDERR_FILENO, "POWER LOST %s: %zu files, %zu names\n", when.c_str(), unsynced_.size(), entries_.size());
  }

  const long nth_;
  const bool keeps_names_;
  std::string root_;
  std::recursive_mutex mutex_;
  long calls_ = 0;
  std::map<std::string, off_t> unsynced_;  // files, and their size when they were last synced
  std::vector<Entry> entries_;             // of folders that were not synced since, in order
};

thread_local bool inside = false;  // calls of Lose itself

// Whether the call at `path` is one to watch; then it has been counted.
bool Watched(const std::string& path) {
  if (inside || !Disk::Get().Holds(path)) return false;
  inside = true;
  Disk::Get().Count(path);
  inside = false;
  return true;
}

__attribute__((destructor)) void EndOfProgram() {
  inside = true;
  Disk::Get().End();
}

}  // namespace

extern "C" {
ssize_t write(int fd, const void* data, size_t size) {
  static const auto next = Next<ssize_t (*)(int, const void*, size_t)>("write");
  if (fd > STDERR_FILENO && !inside) {
    const std::string path = PathOf(fd);
    if (Watched(path)) Disk::Get().Wrote(fd, path);
  }
  return next(fd, data, size);
}
int fsync(int fd) {
  static const auto next = Next<int (*)(int)>("fsync");
  const std::string path = PathOf(fd);
  (void)Watched(path);
  const int result = next(fd);
  if (result == 0) Disk::Get().Synced(path);  // also of the folder that holds POWER_PATH: its name may be new
  return result;
}
int rename(const char* from, const char* to) {
  static const auto next = Next<int (*)(const char*, const char*)>("rename");
  const std::string path = Absolute(to);
  const bool watched = Watched(path);
  const int result = next(from, to);
  if (watched && result == 0) Disk::Get().Renamed(Absolute(from), path);
  return result;
}
int mkdir(const char* path, mode_t mode) {
  static const auto next = Next<int (*)(const char*, mode_t)>("mkdir");
  const bool watched = Watched(Absolute(path));
  const int result = next(path, mode);
  if (watched && result == 0) Disk::Get().Made(Absolute(path));
  return result;
}
int unlink(const char* path) {
  static const auto next = Next<int (*)(const char*)>("unlink");
  (void)Watched(Absolute(path));
  return next(path);
}
int unlinkat(int folder, const char* path, int flags) {
  static const auto next = Next<int (*)(int, const char*, int)>("unlinkat");
  (void)Watched(folder == AT_FDCWD || path[0] == '/' ? Absolute(path) : PathOf(folder) + "/" + path);
  return next(folder, path, flags);
}
int truncate64(const char* path, off64_t size) {
  static const auto next = Next<int (*)(const char*, off64_t)>("truncate64");
  (void)Watched(Absolute(path));
  return next(path, size);
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
  const bool is_new = (flags & O_CREAT) != 0 && !inside && access(path, F_OK) != 0;
  const bool watched = is_new && Watched(Absolute(path));
  const int fd = next(path, flags, mode);
  if (watched && fd >= 0) Disk::Get().Made(Absolute(path));
  return fd;
}
int open(const char* path, int flags, ...) {
  va_list arguments;
  va_start(arguments, flags);
  const mode_t mode = va_arg(arguments, mode_t);
  va_end(arguments);
  return open64(path, flags, mode);
}
}
