#include "comm/local/host_memory.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace temper {
namespace {

constexpr uint64_t kRegion = uint64_t{1} << 44;
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;
constexpr unsigned kNoExecution = 8;  // MFD_NOEXEC_SEAL, since Linux 6.3; some systems ask for it

Status CheckRanks(int ranks) {
  if (ranks >= 1 && ranks <= kMaxHostRanks) return OkStatus();
  return InvalidArgument(fmt::format("{} ranks on one host; there can be 1 to {}", ranks, kMaxHostRanks));
}

// An empty file without a name. The kernel makes it with mode 0777; CreateShared sets 0600.
int MakeFile() {
  int file = memfd_create("temper", MFD_CLOEXEC | MFD_ALLOW_SEALING | kNoExecution);
  if (file < 0 && errno == EINVAL) file = memfd_create("temper", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  return file;
}

}  // namespace

uint64_t HostMemory::RegionOf(int rank) {
  return kRegion * (static_cast<uint64_t>(rank) + 1);
}

HostMemory::~HostMemory() {
  munmap(memory_, static_cast<size_t>(ControlBlock::SizeFor(control_.ranks()).v));
  if (file_ >= 0) close(file_);
}

Result<std::shared_ptr<HostMemory>> HostMemory::Map(int file, int ranks) {
  const auto size = static_cast<size_t>(ControlBlock::SizeFor(ranks).v);
  const int flags = file < 0 ? MAP_PRIVATE | MAP_ANONYMOUS : MAP_SHARED;
  void* const memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, flags, file, 0);
  if (memory == MAP_FAILED) {
    const int error = errno;
    if (file >= 0) close(file);
    return OutOfMemory(fmt::format("cannot map the control block of {} ranks: {}", ranks, std::strerror(error)));
  }
  return std::shared_ptr<HostMemory>(new HostMemory(memory, ranks, file));
}

Result<std::shared_ptr<HostMemory>> HostMemory::Private(int ranks) {
  TEMPER_RETURN_IF_ERROR(CheckRanks(ranks));
  return Map(-1, ranks);
}

Result<std::shared_ptr<HostMemory>> HostMemory::CreateShared(int ranks) {
  TEMPER_RETURN_IF_ERROR(CheckRanks(ranks));
  // The file is far longer than what will be used of it, and a process at its limit would get a signal, not an error.
  rlimit limit;
  if (getrlimit(RLIMIT_FSIZE, &limit) == 0 && limit.rlim_cur < RegionOf(ranks)) {
    return Unsupported(
        "ranks on one host share memory through a file, and this process may only write files of limited size: raise "
        "it with `ulimit -f unlimited`");
  }
  const int file = MakeFile();
  if (file < 0 || fchmod(file, S_IRUSR | S_IWUSR) != 0 || ftruncate(file, static_cast<off_t>(RegionOf(ranks))) != 0 ||
      fcntl(file, F_ADD_SEALS, kSeals) != 0) {
    const int error = errno;
    if (file >= 0) close(file);
    return IoError(fmt::format("cannot make shared memory for {} ranks: {}", ranks, std::strerror(error)));
  }
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<HostMemory> memory, Map(file, ranks));
  memory->control().Stamp();
  return memory;
}

Result<std::shared_ptr<HostMemory>> HostMemory::OpenShared(int file, int ranks) {
  TEMPER_RETURN_IF_ERROR(CheckRanks(ranks));
  const auto refused = [&] {
    return InvalidArgument(
        fmt::format("descriptor {} is not the shared memory of {} ranks of this program", file, ranks));
  };
  struct stat info;
  if (fstat(file, &info) != 0 || info.st_size != static_cast<off_t>(RegionOf(ranks))) return refused();
  const int seals = fcntl(file, F_GET_SEALS);
  if (seals < 0 || (seals & kSeals) != kSeals) return refused();
  const int own = fcntl(file, F_DUPFD_CLOEXEC, 0);
  if (own < 0) return IoError(fmt::format("cannot open shared memory a second time: {}", std::strerror(errno)));
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<HostMemory> memory, Map(own, ranks));
  if (!memory->control().IsStamped()) return refused();
  return memory;
}

}  // namespace temper
