// The contract between the runtime and a processor whose memory may be its own: where an arena lies, and how bytes get
// there and back. The host is the simplest of them (HostStream).
//
// Work is enqueued and runs later, in the order in which it was enqueued: a Kernel made for a device returns from Run
// when its work is in the stream. What is wrong with the work itself is therefore reported by Synchronize.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <span>
#include <string>

#include "base/status.h"
#include "base/units.h"
#include "device/kernel.h"

namespace temper {

// Kernels that were enqueued once, to be enqueued again as one piece of work.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues them all, in their order, with the addresses that they were recorded with.
  virtual Status Replay() = 0;
};

// A queue of work in order. Thread rule: one thread. No call allocates, but Record.
class Stream {
 public:
  virtual ~Stream() = default;
  // Copies between the host's memory and the device's, of equal sizes. The host's bytes must stay as they are, and
  // those that are written must not be read, until Synchronize has returned.
  virtual Status CopyToDevice(std::span<const std::byte> host, std::byte* device) = 0;
  virtual Status CopyToHost(const std::byte* device, std::span<std::byte> host) = 0;
  // Returns when all that was enqueued is done; the first error among it. An error is sticky: what is enqueued after it
  // is not run, and every later call returns it.
  virtual Status Synchronize() = 0;
  // What `enqueue` enqueues is kept instead of run. nullptr where the stream records nothing: `enqueue` was not called.
  // REQUIRES: `enqueue` runs kernels whose Kernel::replayable() is true and nothing else; they outlive the recording.
  virtual Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) {
    (void)enqueue;
    return std::unique_ptr<Recording>();
  }
};

// A processor that a run lives on. Whoever opens it owns it; it outlives its stream, kernels and arenas.
class Device {
 public:
  virtual ~Device() = default;
  // For people: "NVIDIA H200, driver 580.65".
  virtual const std::string& name() const = 0;
  // Zeroed, aligned to kAlignment (program/program.h), kept until the device is gone. Errors: kOutOfMemory, with what
  // was asked for, what is free and who holds the rest where that is known.
  virtual Result<std::span<std::byte>> Allocate(Bytes size) = 0;
  // Gives back what Allocate gave. REQUIRES: nothing that uses it is enqueued.
  virtual void Release(std::span<std::byte> memory) = 0;
  virtual Stream& stream() = 0;
  // Another queue of copies, for another thread, which waits for nothing that is enqueued on stream(): what it reads
  // must be complete. The device must outlive it.
  virtual Result<std::unique_ptr<Stream>> OpenStream() = 0;
  // What they make enqueues on stream().
  virtual KernelTable& kernels() = 0;
};

// The host itself: memory is memory, and what is enqueued has been done. Stateless, any thread.
Stream& HostStream();

}  // namespace temper
