// Arena: the one block of memory a run lives in. Reserved and touched when it is made, so that a machine without the
// memory says so before training, and the step path never calls the kernel's allocator.
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
  // Errors: kOutOfMemory, with the requested size and the machine's free memory. Memory is zeroed.
  static Result<std::unique_ptr<Arena>> Create(Bytes size);
  // Over memory that another object owns and keeps (Communicator::AllocateArena), of the same size.
  static std::unique_ptr<Arena> Over(std::span<std::byte> memory);
  // In a device's own memory, which lives as long as the device. Errors: kOutOfMemory.
  static Result<std::unique_ptr<Arena>> On(Device& device, Bytes size);
  // Pins it, so that `device` can copy from and to it asynchronously, until the arena is destroyed. The device outlives
  // it. REQUIRES: on_host(), and not pinned. Errors: as Device::Pin.
  Status PinFor(Device& device);
  ~Arena();
  Arena(const Arena&) = delete;
  Arena& operator=(const Arena&) = delete;

  // An address of the memory's processor: the host may dereference it if on_host().
  std::byte* At(Bytes offset) const { return base_ + offset.v; }
  Bytes size() const { return size_; }
  bool on_host() const { return &stream_ == &HostStream(); }
  // The memory's device: nullptr on the host.
  Device* device() const { return device_; }
  // The stream in which kernels on this memory are enqueued and bytes are copied.
  Stream& stream() const { return stream_; }

 private:
  Arena(std::byte* base, Bytes size, Bytes reserved, Device* device)
      : base_(base),
        size_(size),
        reserved_(reserved),
        device_(device),
        stream_(device == nullptr ? HostStream() : device->stream()) {}
  std::byte* const base_;
  const Bytes size_, reserved_;  // reserved_ 0: not owned
  Device* const device_;
  Stream& stream_;
  Device* pinned_for_ = nullptr;
};

}  // namespace temper
