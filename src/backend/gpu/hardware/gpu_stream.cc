#include "backend/gpu/hardware/gpu_stream.h"

#include <fmt/core.h>

#include <cstring>

#include "backend/gpu/hardware/progress.h"

namespace temper::gpu {
namespace {

constexpr size_t kWordBytes = sizeof(int64_t) * kMaxFaults;
// Before a copy: the writer's thread of a save is not the one that opened the device.
constexpr char kSelecting[] = "selecting";
constexpr char kWaiting[] = "waiting";
constexpr char kRecording[] = "recording a segment (--graphs false avoids it)";
constexpr size_t kMostArrivals = 256;  // reserved; more allocate

class Graph final : public Recording {
 public:
  explicit Graph(gpuStream_t stream) : stream_(stream) {}
  ~Graph() override {
    if (executable_ != nullptr) (void)gpuGraphExecDestroy(executable_);
    if (graph_ != nullptr) (void)gpuGraphDestroy(graph_);
  }
  Status Capture(const std::function<Status()>& enqueue) {
    TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuStreamBeginCapture(stream_, gpuStreamCaptureModeThreadLocal), kRecording));
    const Status status = enqueue();
    const gpuError_t ended = gpuStreamEndCapture(stream_, &graph_);
    TEMPER_RETURN_IF_ERROR(status);
    TEMPER_RETURN_IF_ERROR(StatusOfCall(ended, kRecording));
    return StatusOfCall(gpuGraphInstantiate(&executable_, graph_), kRecording);
  }
  Status Replay() override { return StatusOfCall(gpuGraphLaunch(executable_, stream_), "launching a graph"); }

 private:
  const gpuStream_t stream_;
  gpuGraph_t graph_ = nullptr;
  gpuGraphExec_t executable_ = nullptr;
};

}  // namespace

Status StatusOfCall(gpuError_t error, const char* what) {
  if (error == gpuSuccess) return OkStatus();
  (void)gpuGetLastError();  // or the next launch would be told of it
  return IoError(fmt::format("GPU: {}: {} ({})", what, gpuGetErrorString(error), static_cast<int>(error)));
}

Result<std::unique_ptr<GpuEvent>> GpuEvent::Make(int device) {
  std::unique_ptr<GpuEvent> made(new GpuEvent(device));
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuSetDevice(device), kSelecting));
  // Waits sleep, because the threads of kernels at the host need every core.
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuEventCreateWithFlags(&made->event_, gpuEventBlockingSync), "an event"));
  return made;
}

GpuEvent::~GpuEvent() {
  if (event_ == nullptr) return;
  (void)gpuSetDevice(device_);
  (void)gpuEventDestroy(event_);
}

Status GpuEvent::Synchronize() {
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuSetDevice(device_), kSelecting));
  return StatusOfCall(gpuEventSynchronize(event_), "waiting for an event");
}

Result<Seconds> GpuEvent::Since(const Event& earlier) const {
  float milliseconds = 0;
  TEMPER_RETURN_IF_ERROR(
      StatusOfCall(gpuEventElapsedTime(&milliseconds, static_cast<const GpuEvent&>(earlier).event_, event_),
                   "the time of an event"));
  return Seconds{milliseconds * 1e-3};
}

Result<std::unique_ptr<GpuStream>> GpuStream::Open(int device, const Options& options) {
  std::unique_ptr<GpuStream> made(new GpuStream(device));
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuSetDevice(device), kSelecting));
  int least = 0, greatest = 0;
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuDeviceGetStreamPriorityRange(&least, &greatest), "priorities of streams"));
  TEMPER_RETURN_IF_ERROR(
      StatusOfCall(gpuStreamCreateWithPriority(&made->stream_, gpuStreamNonBlocking, options.urgent ? greatest : least),
                   "a stream"));
  if (options.pinned) {
    TEMPER_RETURN_IF_ERROR(
        StatusOfCall(gpuMallocHost(reinterpret_cast<void**>(&made->pinned_), kPinned), "pinned memory"));
    made->arrivals_.reserve(kMostArrivals);
  }
  if (!options.faults) return made;
  TEMPER_RETURN_IF_ERROR(
      StatusOfCall(gpuMalloc(reinterpret_cast<void**>(&made->words_), kWordBytes), "memory of faults"));
  TEMPER_RETURN_IF_ERROR(
      StatusOfCall(gpuMallocHost(reinterpret_cast<void**>(&made->words_on_host_), kWordBytes + sizeof(int64_t)),
                   "pinned memory of faults"));
  made->noted_ = made->words_on_host_ + kMaxFaults;
  *made->noted_ = 0;
  TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuMemsetAsync(made->words_, 0, kWordBytes, made->stream_), "clearing"));
  made->faults_ = std::make_unique<Faults>(made->words_);
  return made;
}

GpuStream::~GpuStream() {
  // A thread that has selected no device would make a context on the first.
  (void)gpuSetDevice(device_);
  if (stream_ != nullptr) (void)gpuStreamSynchronize(stream_);
  if (words_ != nullptr) (void)gpuFree(words_);
  if (words_on_host_ != nullptr) (void)gpuFreeHost(words_on_host_);
  if (pinned_ != nullptr) (void)gpuFreeHost(pinned_);
  if (stream_ != nullptr) (void)gpuStreamDestroy(stream_);
}

std::span<std::byte> GpuStream::TakePinned(size_t bytes) {
  constexpr size_t kAlign = 256;
  const size_t rounded = (bytes + kAlign - 1) / kAlign * kAlign;
  if (pinned_ == nullptr || rounded > kPinned - taken_) return {};
  const std::span<std::byte> taken(pinned_ + taken_, bytes);
  taken_ += rounded;
  return taken;
}

Status GpuStream::CopyToDevice(std::span<const std::byte> host, std::byte* device) {
  if (!failed_.ok() || host.empty()) return failed_;
  failed_ = StatusOf(gpuSetDevice(device_), kSelecting);
  if (!failed_.ok()) return failed_;
  const std::span<std::byte> pinned = TakePinned(host.size());
  if (!pinned.empty()) {
    std::memcpy(pinned.data(), host.data(), host.size());
    host = pinned;
  }
  failed_ = StatusOf(gpuMemcpyAsync(device, host.data(), host.size(), gpuMemcpyHostToDevice, stream_), "copying to it");
  return failed_;
}

Status GpuStream::CopyToHost(const std::byte* device, std::span<std::byte> host) {
  if (!failed_.ok() || host.empty()) return failed_;
  failed_ = StatusOf(gpuSetDevice(device_), kSelecting);
  if (!failed_.ok()) return failed_;
  const std::span<std::byte> pinned = TakePinned(host.size());
  if (!pinned.empty()) arrivals_.emplace_back(host, pinned.data());
  std::byte* const to = pinned.empty() ? host.data() : pinned.data();
  failed_ = StatusOf(gpuMemcpyAsync(to, device, host.size(), gpuMemcpyDeviceToHost, stream_), "copying from it");
  return failed_;
}

Status GpuStream::CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows) {
  if (!failed_.ok() || width == Bytes{0} || rows == 0) return failed_;
  failed_ = StatusOf(gpuSetDevice(device_), kSelecting);
  if (!failed_.ok()) return failed_;
  const auto bytes = [](Bytes b) { return static_cast<size_t>(b.v); };
  failed_ = StatusOf(rows == 1 ? gpuMemcpyAsync(to.data, from.data, bytes(width), gpuMemcpyDefault, stream_)
                               : gpuMemcpy2DAsync(to.data, bytes(to.pitch), from.data, bytes(from.pitch), bytes(width),
                                                  static_cast<size_t>(rows), gpuMemcpyDefault, stream_),
                     "a copy");
  return failed_;
}

Status GpuStream::Mark(Event& event) {
  if (!failed_.ok()) return failed_;
  failed_ = StatusOf(gpuEventRecord(static_cast<GpuEvent&>(event).event(), stream_), "marking an event");
  return failed_;
}

Status GpuStream::Await(const Event& event) {
  if (!failed_.ok()) return failed_;
  failed_ =
      StatusOf(gpuStreamWaitEvent(stream_, static_cast<const GpuEvent&>(event).event(), 0u), "waiting for an event");
  return failed_;
}

Status GpuStream::StatusOf(gpuError_t error, const char* what) const {
  if (!IsOfEarlierKernel(error)) return StatusOfCall(error, what);
  const int64_t noted = noted_ == nullptr ? 0 : *static_cast<volatile int64_t*>(noted_);
  return IoError(fmt::format("GPU: a kernel{}: {} ({}); --profile true waits for each one, and names it",
                             noted == 0 ? "" : " of " + *reinterpret_cast<const std::string*>(noted),
                             gpuGetErrorString(error), static_cast<int>(error)));
}

Status GpuStream::Note(const std::string& name) {
  if (!failed_.ok() || noted_ == nullptr) return failed_;
  return WriteProgress(reinterpret_cast<int64_t>(&name), noted_, stream_);
}

Status GpuStream::Synchronize() {
  if (!failed_.ok()) return failed_;
  if (faults_ != nullptr) {
    failed_ =
        StatusOf(gpuMemcpyAsync(words_on_host_, words_, kWordBytes, gpuMemcpyDeviceToHost, stream_), "copying faults");
  }
  if (failed_.ok()) failed_ = StatusOf(gpuStreamSynchronize(stream_), kWaiting);
  for (const auto& [host, pinned] : arrivals_) {
    if (failed_.ok()) std::memcpy(host.data(), pinned, host.size());
  }
  arrivals_.clear();
  taken_ = 0;
  if (failed_.ok() && noted_ != nullptr) *noted_ = 0;  // the noted name may be gone when something fails
  if (failed_.ok() && faults_ != nullptr) {
    failed_ = faults_->Check({words_on_host_, static_cast<size_t>(kMaxFaults)});
  }
  return failed_;
}

Result<std::unique_ptr<Recording>> GpuStream::Record(const std::function<Status()>& enqueue) {
  auto graph = std::make_unique<Graph>(stream_);
  TEMPER_RETURN_IF_ERROR(graph->Capture(enqueue));
  return std::unique_ptr<Recording>(std::move(graph));
}

}  // namespace temper::gpu
