#include "comm/mpi/segment_folder.h"

#include <fcntl.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <system_error>

namespace temper {
namespace {

// Of Open MPI 4 and 5.
constexpr const char* kVariables[] = {"OMPI_MCA_btl_vader_backing_directory", "OMPI_MCA_btl_sm_backing_directory"};

}  // namespace

SegmentFolder::SegmentFolder() {
  for (const char* const variable : kVariables) {
    if (getenv(variable) != nullptr) return;
  }
  char path[] = "/dev/shm/temper-XXXXXX";
  if (mkdtemp(path) == nullptr) return;  // with mode 0700
  path_ = path;
  for (const char* const variable : kVariables) setenv(variable, path, 1);
}

SegmentFolder::~SegmentFolder() {
  if (path_.empty()) return;
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
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
