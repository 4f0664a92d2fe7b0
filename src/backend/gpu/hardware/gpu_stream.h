// A stream of a GPU as the runtime knows it: copies through pinned memory, so that they wait for nothing; recordings as
// the vendor's graphs.
#pragma once

#include <memory>
#include <utility>
#include <vector>

#include "backend/gpu/faults.h"
#include "backend/gpu/gpu_api.h"
#include "device/device.h"

namespace temper::gpu {

Status StatusOfCall(gpuError_t error, const char* what);

class GpuStream final : public Stream {
 public:
  // On GPU `device`. With `faults` it reports what kernels wrote there.
  static Result<std::unique_ptr<GpuStream>> Open(int device, bool faults);
  ~GpuStream() override;
  GpuStream(const GpuStream&) = delete;
  GpuStream& operator=(const GpuStream&) = delete;

  gpuStream_t handle() const { return stream_; }
  Faults* faults() const { return faults_.get(); }

  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override;
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override;
  Status Synchronize() override;
  Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) override;

 private:
  // Copies between two waits: a micro-batch's inputs, losses and scalars; a piece of HostWindow's. What does not fit
  // goes from and to the caller's memory, which the driver copies at once.
  static constexpr size_t kPinned = size_t{8} << 20;

  explicit GpuStream(int device) : device_(device) {}
  // Pinned bytes that nothing uses until the next Synchronize; empty where there are not as many.
  std::span<std::byte> TakePinned(size_t bytes);

  const int device_;
  gpuStream_t stream_ = nullptr;
  std::byte* pinned_ = nullptr;
  size_t taken_ = 0;
  std::vector<std::pair<std::span<std::byte>, const std::byte*>> arrivals_;  // to copy on, once they are there
  int64_t *words_ = nullptr, *words_on_host_ = nullptr;                      // of faults
  std::unique_ptr<Faults> faults_;
  Status failed_;
};

}  // namespace temper::gpu
