// A GPU's stream for the runtime: copies go through pinned memory, so that they are asynchronous; recordings are the
// vendor's graphs.
#pragma once

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "backend/gpu/faults.h"
#include "backend/gpu/gpu_api.h"
#include "device/device.h"

namespace temper::gpu {

Status StatusOfCall(gpuError_t error, const char* what);

class GpuEvent final : public Event {
 public:
  static Result<std::unique_ptr<GpuEvent>> Make(int device);
  ~GpuEvent() override;
  GpuEvent(const GpuEvent&) = delete;
  GpuEvent& operator=(const GpuEvent&) = delete;
  gpuEvent_t event() const { return event_; }
  Status Synchronize() override;
  Result<Seconds> Since(const Event& earlier) const override;

 private:
  explicit GpuEvent(int device) : device_(device) {}
  const int device_;
  gpuEvent_t event_ = nullptr;
};

class GpuStream final : public Stream {
 public:
  struct Options {
    bool faults = false;  // reports what kernels wrote there
    bool pinned = false;  // copies through pinned memory of its own: kPinned bytes
    bool urgent = false;  // blocks of its kernels start before those of other streams that wait
  };
  static Result<std::unique_ptr<GpuStream>> Open(int device, const Options& options);
  // Room for the copies between two waits: a micro-batch's inputs, losses and scalars; a piece of HostWindow's. What
  // does not fit goes from and to the caller's memory, which the driver copies at once.
  static constexpr size_t kPinned = size_t{8} << 20;
  ~GpuStream() override;
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  gpuStream_t stream() const { return stream_; }
  Faults* faults() const { return faults_.get(); }

  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override;
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override;
  Status CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows) override;
  Status Mark(Event& event) override;
  Status Await(const Event& event) override;
  // For streams with faults, whose errors come from our own kernels.
  Status Note(const std::string& name) override;
  void* handle() override { return stream_; }
  Status Synchronize() override;
  Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) override;

 private:
  explicit GpuStream(int device) : device_(device) {}
  // A call's result, or, if that was the error of an earlier kernel, the part of the schedule it belonged to.
  Status StatusOf(gpuError_t error, const char* what) const;
  // Pinned bytes that nothing uses until the next Synchronize; empty if there are too few.
  std::span<std::byte> TakePinned(size_t bytes);

  const int device_;
  gpuStream_t stream_ = nullptr;
  std::byte* pinned_ = nullptr;
  size_t taken_ = 0;
  std::vector<std::pair<std::span<std::byte>, const std::byte*>> arrivals_;  // to copy on, once they have arrived
  int64_t *words_ = nullptr, *words_on_host_ = nullptr;                      // of faults
  int64_t* noted_ = nullptr;  // after those on the host: the Note that kernels have reached, an address or 0
  std::unique_ptr<Faults> faults_;
  Status failed_;
};

}  // namespace temper::gpu
