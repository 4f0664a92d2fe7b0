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
constexpr const char* kPrefix = "temper-";
constexpr time_t kLockingTakes = 60;  // seconds, far more than from making a folder to locking it

// The folder with a lock on it; -1 if it is not ours or somebody holds it.
int Held(const std::string& path) {
  const int fd = open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  struct stat info;
  if (fd >= 0 && fstat(fd, &info) == 0 && info.st_uid == geteuid() && flock(fd, LOCK_EX | LOCK_NB) == 0) return fd;
  if (fd >= 0) close(fd);
  return -1;
}

void RemoveAbandoned() {
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(kPlace, ignored)) {
    struct stat info;
    if (!entry.path().filename().string().starts_with(kPrefix) || lstat(entry.path().c_str(), &info) != 0) continue;
    if (time(nullptr) - info.st_mtime < kLockingTakes) continue;
    const int fd = Held(entry.path());
    if (fd < 0) continue;
    std::filesystem::remove_all(entry.path(), ignored);
    close(fd);
  }
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
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
  if (held_ >= 0) close(held_);
}

void SegmentFolder::Hide() {
  if (path_.empty()) return;
  // Programs that this one starts are no ranks.
  for (const char* const variable : kVariables) unsetenv(variable);
  std::error_code ignored;
  for (const auto& entry : std::filesystem::directory_iterator(path_, ignored)) files_.push_back(entry.path());
  std::filesystem::remove_all(path_, ignored);
}

void SegmentFolder::Show() const {
  if (path_.empty() || mkdir(path_.c_str(), S_IRWXU) != 0) return;
  for (const std::string& file : files_) {
    const int fd = open(file.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, S_IRUSR | S_IWUSR);
    if (fd >= 0) close(fd);
  }
}

}  // namespace temper
