// HostMemory: the memory that ranks of one host share: their control block, and for
// processes the unnamed file (memfd) in which it and their arenas lie. The kernel
// frees it when the last process that holds it has ended, however that happens.
// The file has no name, and only its owner may open it. It is sealed: its size can never change, so no other process
// can make a rank's access to it end in SIGBUS.
#pragma once

#include <memory>

#include "base/status.h"
#include "comm/local/control_block.h"

namespace temper {

class HostMemory {
 public:
  // Private to this process: ranks are its threads.
  static Result<std::shared_ptr<HostMemory>> Private(int ranks);
  // A file that other processes can map, by inheriting its descriptor or through /proc/<pid>/fd.
  static Result<std::shared_ptr<HostMemory>> CreateShared(int ranks);
  // A file that another process has created with CreateShared for as many ranks. `file` stays the caller's: the memory
  // has a descriptor of its own. Errors: another file, or one of a program whose control block is laid out differently.
  static Result<std::shared_ptr<HostMemory>> OpenShared(int file, int ranks);
  ~HostMemory();
  HostMemory(const HostMemory&) = delete;
  HostMemory& operator=(const HostMemory&) = delete;

  const ControlBlock& control() const { return control_; }
  int file() const { return file_; }  // -1: private
  bool shared() const { return file_ >= 0; }

  // The begin of the region of a rank's arenas; for rank == ranks, the end of the file.
  static uint64_t RegionOf(int rank);

 private:
  HostMemory(void* memory, int ranks, int file) : memory_(memory), control_(memory, ranks), file_(file) {}
  static Result<std::shared_ptr<HostMemory>> Map(int file, int ranks);

  void* const memory_;
  const ControlBlock control_;
  const int file_;
};

}  // namespace temper
