// PinnedStaging: moves bytes between a device and a store (the disk tier), which it cannot reach: through two pieces of
// pinned memory, so that one is on its way to the device while the next is read.
//
// Memory: 2 x kPieceBytes of the host's, pinned. Thread rule: one thread, which waits until the bytes are there. No
// call allocates.
#pragma once

#include <array>
#include <memory>

#include "base/status.h"
#include "base/units.h"
#include "device/device.h"
#include "runtime/arena.h"

namespace temper {

class PinnedStaging {
 public:
  // Large enough that neither a disk nor a link loses much between two pieces.
  static constexpr Bytes kPieceBytes = MiB(4);
  static constexpr Bytes kBytes = {2 * kPieceBytes.v};

  // On a stream of its own, which waits for nothing: the caller has waited. `device` must outlive it.
  static Result<std::unique_ptr<PinnedStaging>> Make(Device& device);
  ~PinnedStaging();
  PinnedStaging(const PinnedStaging&) = delete;
  PinnedStaging& operator=(const PinnedStaging&) = delete;

  // Copies `size` bytes from an address of `store` to one of the device, or back.
  Status ToDevice(Stream& store, const std::byte* from, std::byte* to, Bytes size);
  Status FromDevice(std::byte* from, Stream& store, std::byte* to, Bytes size);

 private:
  PinnedStaging() = default;
  std::span<std::byte> Piece(int64_t i, Bytes size);

  std::unique_ptr<Arena> memory_;  // pages of its own: a page that two registered pieces share is refused
  std::unique_ptr<Stream> stream_;
  std::array<std::unique_ptr<Event>, 2> copied_;  // one per piece
};

}  // namespace temper
