// The contract between the runtime and a processor that may have memory of its own: where an arena lies, and how bytes
// get there and back. The host is the simplest case (HostStream).
//
// Work is enqueued and runs later, in the order in which it was enqueued: a Kernel made for a device returns from Run
// when its work is in the stream. So Synchronize reports errors of the work itself.
//
// A device has several streams, ordered among each other only by events: one stream marks an event, another awaits it,
// and continues when everything that was enqueued before the mark is done.
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
#include "device/product_choices.h"

namespace temper {

// Kernels that were enqueued once, to be enqueued again as one unit.
class Recording {
 public:
  virtual ~Recording() = default;
  // Enqueues them all, in order, with the addresses that they were recorded with.
  virtual Status Replay() = 0;
};

// A place in the order of a stream (Stream::Mark), which another stream or the host waits for. A new mark makes it
// another place; a stream that already awaits it still waits for the earlier one. Must outlive streams that await it.
class Event {
 public:
  virtual ~Event() = default;
  // Blocks the host until what was enqueued before the mark is done; not at all if nothing was marked. Any thread.
  // Stream::Synchronize reports errors of the work itself.
  virtual Status Synchronize() = 0;
  // By the device's own clock. REQUIRES: both are marked, and done.
  virtual Result<Seconds> Since(const Event& earlier) const = 0;
};

// A queue of work in order. Thread rule: one thread. No call allocates, except Record.
class Stream {
 public:
  virtual ~Stream() = default;
  // Rows of bytes, each `pitch` bytes after the one before. One copy within CopyRows.
  struct Rows {
    std::byte* data = nullptr;
    Bytes pitch;
  };
  // Copies between the host's memory and the device's, of equal sizes. Until Synchronize has returned, the host's
  // source bytes must not change and its destination bytes must not be read.
  virtual Status CopyToDevice(std::span<const std::byte> host, std::byte* device) = 0;
  virtual Status CopyToHost(const std::byte* device, std::span<std::byte> host) = 0;
  // Copies `rows` rows of `width` bytes when the stream gets there: it reads and writes both ends then, no sooner. Each
  // end lies in the device's memory, or in pinned memory of the host (Device::Pin).
  virtual Status CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows);
  Status Copy(std::byte* from, std::byte* to, Bytes size) { return CopyRows({from, size}, {to, size}, size, 1); }
  // What is enqueued here from now on runs after `event`. Neither call blocks. A stream whose work is done when a call
  // returns has nothing to mark: awaiting an event that was never marked does not block.
  virtual Status Mark(Event& event);
  virtual Status Await(const Event& event);
  // What is enqueued from now on belongs to `name`, which must stay valid: Synchronize names it in an error that shows
  // only later. May be recorded.
  virtual Status Note(const std::string& name) {
    (void)name;
    return OkStatus();
  }
  // The vendor's handle (cudaStream_t), for libraries that enqueue on it themselves. nullptr: none.
  virtual void* handle() { return nullptr; }
  // Returns when all that was enqueued is done; the first error among it. An error is sticky: later work is not run,
  // and every later call returns the error.
  virtual Status Synchronize() = 0;
  // Keeps what `enqueue` enqueues instead of running it. nullptr if the stream records nothing: then `enqueue` was not
  // called. REQUIRES: `enqueue` only runs kernels whose Kernel::replayable() is true, and Note; they outlive the
  // recording.
  virtual Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) {
    (void)enqueue;
    return std::unique_ptr<Recording>();
  }
};

// The uses of a device's streams. Collectives that are needed at once are enqueued among the kernels.
enum class StreamUse : uint8_t { kCompute, kCollectives, kSoonCollectives, kSends, kReceives, kFetches, kEvictions };
inline constexpr int kNumStreamUses = static_cast<int>(StreamUse::kEvictions) + 1;

class Communicator;
class DeviceExchanges;
class Mesh;

// A processor that runs compute on. Its opener owns it; it outlives its streams, events, kernels and arenas.
class Device {
 public:
  virtual ~Device() = default;
  // For messages: "NVIDIA H200, driver 580.65".
  virtual const std::string& name() const = 0;
  // Zeroed, aligned to kAlignment (program/program.h), kept until the device is destroyed. Errors: kOutOfMemory, with
  // the size requested, what is free and, if known, which processes hold the rest.
  virtual Result<std::span<std::byte>> Allocate(Bytes size) = 0;
  // Gives back what Allocate gave. REQUIRES: nothing that uses it is enqueued.
  virtual void Release(std::span<std::byte> memory) = 0;
  // The device's memory, measured now.
  struct Memory {
    Bytes total, free;
    Bytes beside;  // neither free nor given by Allocate: contexts, libraries and scratch, of all processes
    Bytes pinned;  // the host's memory, pinned for copies
  };
  virtual Result<Memory> MeasureMemory() = 0;
  // For messages: the other processes that hold its memory, if the driver names them: "python3 (process 4711) holds
  // 30.00 GiB". Lists all of the device's processes: call it only when a message needs it.
  virtual std::string MemoryHolders() { return ""; }
  // Makes the host's memory known to the device, so that copies of it are asynchronous (Stream::CopyRows), and undoes
  // that. Meanwhile the system may not swap it out. Errors: kOutOfMemory, if a limit of the system forbids it. REQUIRES
  // of both: nothing that uses it is enqueued.
  virtual Status Pin(std::span<std::byte> memory) = 0;
  virtual void Unpin(std::span<std::byte> memory) = 0;
  // The vendor's library for communication between its devices: "libnccl.so.2".
  virtual const char* collectives_library() const = 0;
  // Thread rule: the same one thread for all of them.
  virtual Stream& StreamFor(StreamUse use) = 0;
  Stream& stream() { return StreamFor(StreamUse::kCompute); }
  // Another queue of copies, for another thread. It waits for work on other streams only where told to: what it reads
  // must be complete. The device must outlive it.
  virtual Result<std::unique_ptr<Stream>> OpenStream() = 0;
  virtual Result<std::unique_ptr<Event>> MakeEvent() = 0;
  // Their kernels enqueue on StreamFor(use). Except for kCompute: elementwise ops only.
  virtual KernelTable& KernelsFor(StreamUse use) = 0;
  // Kernels made from now on may exchange numbers with those of other ranks of `mesh`: through `exchanges`, or, if they
  // run on the host, through `host`. Both outlive them. Without this, instructions that need an exchange are refused.
  virtual void Join(Communicator& host, DeviceExchanges& exchanges, const Mesh& mesh) = 0;
  KernelTable& kernels() { return KernelsFor(StreamUse::kCompute); }
  // Chooses the algorithms of all matrix products among the kernels that exist: those of `choices` that its library
  // offers again. All others are timed, and added to `choices`. Takes some seconds, and `memory` of the device, zeroed
  // and not in use, for operands; it is zeroed afterwards. A device whose products have one algorithm each has nothing
  // to do.
  virtual Result<ProductTiming> ChooseProducts(std::span<std::byte> memory, ProductChoices* choices) {
    (void)memory, (void)choices;
    return ProductTiming();
  }
};

// The host itself: memory is memory, and enqueued work is already done. Stateless, any thread.
Stream& HostStream();

}  // namespace temper
