// A part of a tensor and whose memory it lies in; how the host fills and reads it, wherever that is. Host memory is
// used in place; other memory is accessed through a window of the host's, piece by piece.
//
// Thread rule: the thread of the part's stream.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "base/units.h"
#include "device/device.h"
#include "tensor/view.h"

namespace temper {

struct DevicePart {
  PartView part;  // its data is an address of the stream's processor; null if there is no such part
  Stream* stream = &HostStream();

  DevicePart() = default;
  DevicePart(const PartView& p) : part(p) {}  // NOLINT(google-explicit-constructor)
  DevicePart(const View& v) : part(v) {}      // NOLINT(google-explicit-constructor)
  DevicePart(const PartView& p, Stream& s) : part(p), stream(&s) {}

  bool exists() const { return part.view.data != nullptr; }
  bool on_host() const { return stream == &HostStream(); }
};

class HostWindow {
 public:
  // Large enough to make a copy's start negligible, small beside a model.
  static constexpr Bytes kBytes = MiB(4);

  // Calls fill(piece) for pieces that cover `to`, in order, and puts each where it belongs. On the host there is one
  // piece, `to` itself; elsewhere a piece is as many rows as fit in kBytes, one at least (of a vector: elements; of
  // three dims and more: rows of the last two).
  Status Fill(const DevicePart& to, const std::function<Status(const PartView& piece)>& fill);
  // Puts `bytes` where byte `at` of `to` is, for callers that have its bytes in any
  // order. On the host at once, elsewhere when kBytes have gathered; Flush puts the
  // rest. Between two flushes all must be of one stream, with no other use.
  Status Put(const DevicePart& to, int64_t at, std::span<const std::byte> bytes);
  Status Flush();
  // Calls take(bytes) with the bytes of `from`, in order, in runs of at most kBytes unless it is on the host.
  Status Read(const DevicePart& from, const std::function<Status(std::span<const std::byte> bytes)>& take);

 private:
  // One index of the first dim. REQUIRES: on the device, at least three dims.
  Status FillLine(const DevicePart& line, const std::function<Status(const PartView& piece)>& fill);

  // Bytes of the window that go to one place.
  struct Run {
    std::byte* to;
    int64_t bytes;
  };
  std::vector<std::byte> memory_;
  // For Put: what has gathered at the window's begin, one run after the other.
  std::vector<Run> runs_;
  int64_t gathered_ = 0;
  Stream* stream_ = nullptr;
};

}  // namespace temper
