// The contract between the runtime and a processor whose memory may be its own: where an arena lies, and how bytes get
// there and back. The host is the simplest of them (HostStream).
//
// Work is enqueued and runs later, in the order in which it was enqueued: a Kernel made for a device returns from Run
// when its work is in the stream. What is wrong with the work itself is therefore reported by Synchronize.
//
// A device has several streams, which know nothing of each other's order but what events say: one stream marks an
// event, another awaits it, and goes on when all that was enqueued before the mark is done.
#pragma once

#include <cstddef>
#include <cstdint>
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

// A place in the order of a stream (Stream::Mark), which another stream or the host waits for. Marked again, it is
// another place; a stream that awaits it already waits for the place that it was then. Outlives what awaits it.
class Event {
 public:
  virtual ~Event() = default;
  // The host waits until what was enqueued before the mark is done; at once where nothing was marked. Any thread. What
  // went wrong with the work itself is told by Stream::Synchronize.
  virtual Status Synchronize() = 0;
  // What a clock of the device's says. REQUIRES: both are marked, and done.
  virtual Result<Seconds> Since(const Event& earlier) const = 0;
};

// A queue of work in order. Thread rule: one thread. No call allocates, but Record.
class Stream {
 public:
  virtual ~Stream() = default;
  // Rows of bytes, each `pitch` bytes after the one before. What one copy within CopyRows moves.
  struct Rows {
    std::byte* data = nullptr;
    Bytes pitch;
  };
  // Copies between the host's memory and the device's, of equal sizes. The host's bytes must stay as they are, and
  // those that are written must not be read, until Synchronize has returned.
  virtual Status CopyToDevice(std::span<const std::byte> host, std::byte* device) = 0;
  virtual Status CopyToHost(const std::byte* device, std::span<std::byte> host) = 0;
  // Copies `rows` rows of `width` bytes when their turn comes: both ends are read and written then, no sooner. Each end
  // lies in the device's memory, or in the host's where that is pinned (Device::Pin).
  virtual Status CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows);
  Status Copy(std::byte* from, std::byte* to, Bytes size) { return CopyRows({from, size}, {to, size}, size, 1); }
  // What is enqueued here from now on comes after `event`. Neither waits for anything. A stream whose work is done when
  // it returns has nothing to mark: an event that was never marked holds up nobody.
  virtual Status Mark(Event& event);
  virtual Status Await(const Event& event);
  // What is enqueued from now on is part of `name`, which stays while it is: Synchronize says so of an error that shows
  // when nobody knows what was enqueued where. May be recorded.
  virtual Status Note(const std::string& name) {
    (void)name;
    return OkStatus();
  }
  // What a vendor's library calls it (cudaStream_t), for those that enqueue on it themselves. nullptr: nothing.
  virtual void* handle() { return nullptr; }
  // Returns when all that was enqueued is done; the first error among it. An error is sticky: what is enqueued after it
  // is not run, and every later call returns it.
  virtual Status Synchronize() = 0;
  // What `enqueue` enqueues is kept instead of run. nullptr where the stream records nothing: `enqueue` was not called.
  // REQUIRES: `enqueue` runs kernels whose Kernel::replayable() is true, and Note, and nothing else; they outlive the
  // recording.
  virtual Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) {
    (void)enqueue;
    return std::unique_ptr<Recording>();
  }
};

// What streams of a device are for. Collectives that are needed at once are enqueued among the kernels.
enum class StreamUse : uint8_t { kCompute, kCollectives, kSoonCollectives, kSends, kReceives, kFetches, kEvictions };
inline constexpr int kNumStreamUses = static_cast<int>(StreamUse::kEvictions) + 1;

class Communicator;
class DeviceExchanges;
class Mesh;

// A processor that a run lives on. Whoever opens it owns it; it outlives its streams, events, kernels and arenas.
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
  // The device's memory, measured now.
  struct Memory {
    Bytes total, free;
    Bytes beside;  // what is neither free nor given by Allocate: contexts, libraries and scratch, of all processes
    Bytes pinned;  // of the host's memory, for copies
  };
  virtual Result<Memory> MeasureMemory() = 0;
  // For people: what other processes hold of it, where the driver names them: "python3 (process 4711) holds 30.00 GiB".
  // Lists all of the device's processes: to be asked when a message needs it.
  virtual std::string MemoryHolders() { return ""; }
  // Makes memory of the host's known to the device, so that copies of it wait for their turn (Stream::CopyRows), and
  // undoes that. It stays where it is meanwhile: the system may not swap it out. Errors: kOutOfMemory, where a limit of
  // the system's forbids it. REQUIRES of both: nothing that uses it is enqueued.
  virtual Status Pin(std::span<std::byte> memory) = 0;
  virtual void Unpin(std::span<std::byte> memory) = 0;
  // The vendor's library for what several of its devices do together: "libnccl.so.2".
  virtual const char* collectives_library() const = 0;
  // Thread rule: the same one thread for all of them.
  virtual Stream& StreamFor(StreamUse use) = 0;
  Stream& stream() { return StreamFor(StreamUse::kCompute); }
  // Another queue of copies, for another thread, which waits for nothing that is enqueued on the others unless it is
  // told to: what it reads must be complete. The device must outlive it.
  virtual Result<std::unique_ptr<Stream>> OpenStream() = 0;
  virtual Result<std::unique_ptr<Event>> MakeEvent() = 0;
  // What they make enqueues on StreamFor(use). Beside kCompute: elementwise ops only.
  virtual KernelTable& KernelsFor(StreamUse use) = 0;
  // Kernels made from now on may exchange numbers with those of other ranks of `mesh`: through `exchanges`, or where
  // kernels are the host's, through `host`. Both outlive them. Without it instructions that need to are refused.
  virtual void Join(Communicator& host, DeviceExchanges& exchanges, const Mesh& mesh) = 0;
  KernelTable& kernels() { return KernelsFor(StreamUse::kCompute); }
};

// The host itself: memory is memory, and what is enqueued has been done. Stateless, any thread.
Stream& HostStream();

}  // namespace temper
