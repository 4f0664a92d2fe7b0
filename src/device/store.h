// The contract between the runtime and memory that has no processor addresses: the disk tier. Bytes are read and
// written by their place in one flat space.
//
// Thread rule: one thread reads while another writes; they touch different bytes. No call allocates.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "device/device.h"

namespace temper {

struct StoreRead {
  Bytes at;
  std::span<std::byte> to;
};

class Store {
 public:
  virtual ~Store() = default;
  virtual Bytes size() const = 0;
  // Errors name the file, the offset and the cause. REQUIRES: within size().
  virtual Status Read(Bytes at, std::span<std::byte> to) = 0;
  virtual Status Write(Bytes at, std::span<const std::byte> from) = 0;
  // As Read of each, together: a disk may serve all at once.
  virtual Status ReadAll(std::span<const StoreRead> reads) {
    for (const StoreRead& read : reads) {
      if (Status status = Read(read.at, read.to); !status.ok()) return status;
    }
    return {};
  }
  // Begins or ceases: the processor is idle until a read completes, so spending processor time to speed up reads is
  // free. May be called by any thread.
  virtual void NoteAwaited(bool /*awaited*/) {}
};

// A store as a device's memory, so that code that moves bytes to and from a device also works with a store. Its
// addresses are places plus a base above 0, which no processor may dereference. Copies are done when they return; the
// store must outlive it. Thread rule: the store's.
class StoreStream final : public Stream {
 public:
  StoreStream(Store& store, Bytes base) : store_(store), base_(base) {}
  std::byte* AddressOf(Bytes at) const;
  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override;
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override;
  // Places, not addresses.
  Status CopyAllToHost(std::span<const StoreRead> reads) { return store_.ReadAll(reads); }
  Status Synchronize() override { return OkStatus(); }
  void NoteAwaited(bool awaited) { store_.NoteAwaited(awaited); }

  Bytes PlaceOf(const std::byte* address) const;

 private:
  Store& store_;
  const Bytes base_;
};

}  // namespace temper
