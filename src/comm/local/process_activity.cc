#include "comm/local/process_activity.h"

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace temper {
namespace {

// What a process does that only waits: timers, progress lines, threads that look at /proc.
constexpr double kIdleShare = 0.0025, kIdleBytesPerSecond = 65536;

// Reads a file of /proc; false where it is gone.
template <size_t kSize>
bool ReadProc(const char* path, char (&text)[kSize]) {
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return false;
  const ssize_t n = read(fd, text, kSize - 1);
  close(fd);
  if (n <= 0) return false;
  text[n] = 0;
  return true;
}

int64_t NumberAfter(const char* text, const char* key) {
  const char* const at = std::strstr(text, key);
  return at == nullptr ? 0 : std::strtoll(at + std::strlen(key), nullptr, 10);
}

// What follows "pid (name) ": the name may hold anything, so the last ')' counts. nullptr where there is nothing.
const char* AfterName(const char* stat) {
  const char* const at = std::strrchr(stat, ')');
  return at == nullptr || at[1] == 0 ? nullptr : at + 2;
}

// Whether a thread is in state D. Directories are read by hand: opendir allocates.
bool AnyThreadBlocked(int pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/task", pid);
  const int folder = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (folder < 0) return false;
  bool blocked = false;
  alignas(8) char entries[4096];
  struct Entry {  // of getdents64
    uint64_t inode;
    int64_t offset;
    uint16_t length;
    unsigned char type;
    char name[1];
  };
  long n = 0;
  while (!blocked && (n = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0) {
    for (long at = 0; at < n && !blocked;) {
      const auto* const entry = reinterpret_cast<const Entry*>(entries + at);
      at += entry->length;
      if (entry->name[0] < '0' || entry->name[0] > '9') continue;
      std::snprintf(path, sizeof path, "/proc/%d/task/%.20s/stat", pid, entry->name);
      if (!ReadProc(path, text)) continue;
      const char* const state = AfterName(text);
      blocked = state != nullptr && *state == 'D';
    }
  }
  close(folder);
  return blocked;
}

}  // namespace

bool ProcessActivity::WorkedSince(const ProcessActivity& before, double seconds) const {
  static const long ticks_per_second = sysconf(_SC_CLK_TCK);
  const auto idle_ticks = static_cast<int64_t>(kIdleShare * seconds * static_cast<double>(ticks_per_second)) + 1;
  return blocked || ticks - before.ticks > idle_ticks ||
         static_cast<double>(bytes - before.bytes) > kIdleBytesPerSecond * seconds + 4096;
}

ProcessActivity ActivityOf(int pid, int tid) {
  if (pid == 0) return {};
  char path[64], text[1024];
  const auto path_of = [&](const char* name) {
    if (tid == 0) {
      std::snprintf(path, sizeof path, "/proc/%d/%s", pid, name);
    } else {
      std::snprintf(path, sizeof path, "/proc/%d/task/%d/%s", pid, tid, name);
    }
    return path;
  };
  if (!ReadProc(path_of("stat"), text)) return {};
  const char* at = AfterName(text);
  if (at == nullptr) return {};
  ProcessActivity activity{.known = true, .state = *at};
  // "state ppid ...": utime and stime are fields 14 and 15, state is 3.
  for (int field = 3; field < 14 && at != nullptr; ++field) {
    at = std::strchr(at, ' ');
    if (at != nullptr) ++at;
  }
  if (at == nullptr) return {};
  char* end = nullptr;
  activity.ticks = std::strtoll(at, &end, 10);
  activity.ticks += std::strtoll(end, nullptr, 10);
  if (ReadProc(path_of("io"), text)) activity.bytes = NumberAfter(text, "rchar: ") + NumberAfter(text, "wchar: ");
  activity.blocked = tid == 0 ? AnyThreadBlocked(pid) : activity.state == 'D';
  return activity;
}

}  // namespace temper
