// Arena: the one block of memory a run lives in. Reserved and touched when it is made, so that a machine without the
// memory says so before training, and the step path never meets the kernel's allocator.
#pragma once

#include <cstddef>
#include <memory>
#include <span>

#include "base/status.h"
#include "base/units.h"
#include "device/device.h"

namespace temper {

class Arena {
 public:
  // Errors: kOutOfMemory, with what was asked for and what the machine has free. Memory is zeroed.
  static Result<std::unique_ptr<Arena>> Create(Bytes size);
  // Over memory that somebody else owns and keeps (Communicator::AllocateArena), as large as that.
  static std::unique_ptr<Arena> Over(std::span<std::byte> memory);
  // In a device's own memory, which lives as long as the device. Errors: kOutOfMemory.
  static Result<std::unique_ptr<Arena>> On(Device& device, Bytes size);
  // Keeps it where `device` can copy from and to it in its own order, until the arena is gone. The device outlives it.
  // REQUIRES: on_host(), and not pinned. Errors: as Device::Pin.
  Status PinFor(Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // An address of the memory's processor: the host may follow it where on_host().
  std::byte* At(Bytes offset) const { return base_ + offset.v; }
  Bytes size() const { return size_; }
  bool on_host() const { return &stream_ == &HostStream(); }
  // Whose memory this is: nullptr on the host.
  Device* device() const { return device_; }
  // In which kernels on this memory are enqueued and bytes are copied.
  Stream& stream() const { return stream_; }

 private:
  Arena(std::byte* base, Bytes size, Bytes reserved, Device* device)
      : base_(base),
        size_(size),
        reserved_(reserved),
        device_(device),
        stream_(device == nullptr ? HostStream() : device->stream()) {}
  std::byte* const base_;
  const Bytes size_, reserved_;  // reserved_ 0: not ours
  Device* const device_;
  Stream& stream_;
  Device* pinned_for_ = nullptr;
};

}  // namespace temper
