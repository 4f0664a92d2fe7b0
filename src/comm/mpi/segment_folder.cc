#include "comm/mpi/segment_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <ctime>

#include <filesystem>
#include <system_error>

namespace temper {
namespace {

// Of Open MPI 4 and 5.
constexpr const char* kVariables[] = {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"};

constexpr const char* kPlace = "/dev/shm";
constexpr const char* kPrefix = ".temper-mpi-";
constexpr size_t kRandomCharacters = 6;  // behind it
constexpr time_t kLockingTakes = 60;     // seconds, far more than from making a folder to locking it

// The folder with a lock on it; -1 if it is not ours or somebody holds it.
int Held(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

bool IsSegment(const std::filesystem::directory_entry& entry) {
  std::error_code ignored;
  const std::string name = entry.path().filename().string();
  return entry.symlink_status(ignored).type() == std::filesystem::file_type::regular &&
         (name.starts_with("vader_segment.") || name.starts_with("sm_segment."));
}

std::vector<std::filesystem::directory_entry> EntriesOf(const std::string& folder) {
  std::vector<std::filesystem::directory_entry> entries;
  std::error_code error;
  auto it = std::filesystem::directory_iterator(folder, error);
  for (; !error && it != std::filesystem::directory_iterator(); it.increment(error)) entries.push_back(*it);
  return entries;
}

// Removes Open MPI's files, and the folder if nothing else is in it: nobody's data.
void RemoveSegments(const std::string& folder) {
  for (const auto& entry : EntriesOf(folder)) {
    if (IsSegment(entry)) unlink(entry.path().c_str());
  }
  rmdir(folder.c_str());
}

void RemoveAbandoned() {
  for (const auto& entry : EntriesOf(kPlace)) {
    const std::string path = entry.path().string(), name = entry.path().filename().string();
    struct stat info;
    if (!name.starts_with(kPrefix) || name.size() != std::string(kPrefix).size() + kRandomCharacters) continue;
    if (lstat(path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) || (info.st_mode & 07777) != S_IRWXU) continue;
    if (time(nullptr) - info.st_mtime < kLockingTakes) continue;
    const int fd = Held(path);
    if (fd < 0) continue;
    RemoveSegments(path);
    close(fd);
  }
}

// Programs that this one starts are no ranks.
void ForgetVariables() {
  for (const char* const variable : kVariables) unsetenv(variable);
}

}  // namespace

SegmentFolder::SegmentFolder() {
  for (const char* const variable : kVariables) {
    if (getenv(variable) != nullptr) return;
  }
  RemoveAbandoned();
  std::string path = std::string(kPlace) + "/" + kPrefix + "XXXXXX";
  if (mkdtemp(path.data()) == nullptr) return;  // with mode 0700
  path_ = path;
  held_ = Held(path_);
  for (const char* const variable : kVariables) setenv(variable, path_.c_str(), 1);
}

SegmentFolder::~SegmentFolder() {
  if (path_.empty()) return;
  ForgetVariables();
  RemoveSegments(path_);
  if (held_ >= 0) close(held_);
}

void SegmentFolder::Hide() {
  if (path_.empty()) return;
  ForgetVariables();
  for (const auto& entry : EntriesOf(path_)) {
    if (IsSegment(entry)) files_.push_back(entry.path());
  }
  RemoveSegments(path_);
}

void SegmentFolder::Show() const {
  if (path_.empty() || mkdir(path_.c_str(), S_IRWXU) != 0) return;
  for (const std::string& file : files_) {
    const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd >= 0) close(fd);
  }
}

}  // namespace temper
