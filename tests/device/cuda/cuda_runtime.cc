// CUDA's runtime, for tests: the functions that the host's code calls, over one simulated GPU. What CUDA documents as
// an error is one here, and so is what it leaves undefined, where that can be detected.
#include <cuda_runtime_api.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "calls.h"

namespace temper::cuda {
namespace {

thread_local cudaError_t last_error = cudaSuccess;

thread_local int selected = 0;
bool Exists(int device) {
  return device >= 0 && device < SimulatedGpu::The().count();
}

// The context that a driver keeps beside allocated memory.
constexpr int64_t kContextBytes = int64_t{400} << 20;

}  // namespace

cudaError_t Ended(cudaError_t error) {
  if (error != cudaSuccess) last_error = error;
  return error;
}

cudaError_t Usable() {
  if (SimulatedGpu::The().facts() == nullptr) return cudaErrorNoDevice;
  return SimulatedGpu::The().failed();
}

CUstream_st*& RecordedHere() {
  thread_local CUstream_st* stream = nullptr;
  return stream;
}

cudaError_t UsableBesideRecording() {
  if (CUstream_st* const stream = RecordedHere(); stream != nullptr) {
    stream->capture->invalid = true;
    return cudaErrorStreamCaptureUnsupported;
  }
  return Usable();
}

CUstream_st& StreamOf(cudaStream_t stream) {
  static auto* const legacy = new CUstream_st;
  return stream == nullptr ? *legacy : *stream;
}

}  // namespace temper::cuda

using namespace temper::cuda;  // the functions below are C's

extern "C" {

const char* cudaGetErrorString(cudaError_t error) {
  switch (error) {  // in the words of CUDA's own
    case cudaSuccess:
      return "no error";
    case cudaErrorInvalidValue:
      return "invalid argument";
    case cudaErrorMemoryAllocation:
      return "out of memory";
    case cudaErrorInvalidConfiguration:
      return "invalid configuration argument";
    case cudaErrorNoDevice:
      return "no CUDA-capable device is detected";
    case cudaErrorInvalidDevice:
      return "invalid device ordinal";
    case cudaErrorNoKernelImageForDevice:
      return "no kernel image is available for execution on the device";
    case cudaErrorInvalidDeviceFunction:
      return "invalid device function";
    case cudaErrorInvalidPtx:
      return "a PTX JIT compilation failed";
    case cudaErrorInvalidResourceHandle:
      return "invalid resource handle";
    case cudaErrorNotReady:
      return "device not ready";
    case cudaErrorIllegalAddress:
      return "an illegal memory access was encountered";
    case cudaErrorLaunchFailure:
      return "unspecified launch failure";
    case cudaErrorStreamCaptureUnsupported:
      return "operation not permitted when stream is capturing";
    case cudaErrorStreamCaptureInvalidated:
      return "operation failed due to a previous error during capture";
    default:
      return "an error without words (simulated GPU)";
  }
}

cudaError_t cudaGetLastError() {
  const cudaError_t last = SimulatedGpu::The().failed() == cudaSuccess ? last_error : SimulatedGpu::The().failed();
  last_error = cudaSuccess;
  return last;
}

// Devices. A process does everything on one of them, whichever it selects.

cudaError_t cudaDriverGetVersion(int* version) {
  *version = SimulatedGpu::The().facts() == nullptr ? 0 : CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaRuntimeGetVersion(int* version) {
  *version = CUDART_VERSION;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceCount(int* count) {
  *count = SimulatedGpu::The().count();
  return *count == 0 ? Ended(cudaErrorNoDevice) : cudaSuccess;
}
cudaError_t cudaGetDevice(int* device) {
  *device = selected;
  return Ended(Usable());
}
cudaError_t cudaSetDevice(int device) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (!Exists(device)) return Ended(cudaErrorInvalidDevice);
  selected = device;
  return cudaSuccess;
}
cudaError_t cudaGetDeviceProperties(cudaDeviceProp* properties, int device) {
  const GpuFacts* const facts = SimulatedGpu::The().facts();
  if (!Exists(device)) return Ended(cudaErrorInvalidDevice);
  *properties = {};
  std::strncpy(properties->name, facts->name, sizeof(properties->name) - 1);
  std::memcpy(properties->uuid.bytes, "simulated GPU", sizeof("simulated GPU"));
  properties->uuid.bytes[15] = static_cast<char>(device);
  properties->totalGlobalMem = static_cast<size_t>(SimulatedGpu::The().memory_size());
  properties->sharedMemPerBlock = 48 << 10;
  properties->sharedMemPerBlockOptin = static_cast<size_t>(facts->shared_bytes_with_request);
  properties->warpSize = 32;
  properties->maxThreadsPerBlock = 1024;
  properties->major = facts->major;
  properties->minor = facts->minor;
  properties->multiProcessorCount = facts->multiprocessors;
  return cudaSuccess;
}
cudaError_t cudaDeviceGetAttribute(int* value, cudaDeviceAttr attribute, int device) {
  const GpuFacts* const facts = SimulatedGpu::The().facts();
  if (!Exists(device)) return Ended(cudaErrorInvalidDevice);
  switch (attribute) {
    case cudaDevAttrComputeCapabilityMajor:
      *value = facts->major;
      return cudaSuccess;
    case cudaDevAttrComputeCapabilityMinor:
      *value = facts->minor;
      return cudaSuccess;
    case cudaDevAttrMultiProcessorCount:
      *value = facts->multiprocessors;
      return cudaSuccess;
    default:
      Say(fmt::format("the simulated device has no attribute {}", static_cast<int>(attribute)));
      return Ended(cudaErrorInvalidValue);
  }
}
cudaError_t cudaDeviceGetPCIBusId(char* id, int bytes, int device) {
  if (!Exists(device)) return Ended(cudaErrorInvalidDevice);
  const std::string bus = fmt::format("00000000:{:02x}:00.0", device + 1);
  if (static_cast<size_t>(bytes) <= bus.size()) return Ended(cudaErrorInvalidValue);
  std::memcpy(id, bus.c_str(), bus.size() + 1);
  return cudaSuccess;
}

// Memory.

cudaError_t cudaMemGetInfo(size_t* free, size_t* total) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  SimulatedGpu& gpu = SimulatedGpu::The();
  *total = static_cast<size_t>(gpu.memory_size());
  *free = static_cast<size_t>(std::max(gpu.memory_size() - kContextBytes - gpu.memory.allocated(), int64_t{0}));
  return cudaSuccess;
}
cudaError_t cudaMalloc(void** memory, size_t bytes) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  *memory = nullptr;
  if (bytes == 0) return cudaSuccess;
  SimulatedGpu& gpu = SimulatedGpu::The();
  const auto wanted = static_cast<int64_t>(bytes);
  if (wanted > gpu.memory_size() - kContextBytes - gpu.memory.allocated()) return Ended(cudaErrorMemoryAllocation);
  if (wanted > gpu.real_memory() - gpu.memory.allocated()) {
    Say(fmt::format("{} bytes more than the test's machine gives it (TEMPER_TEST_GPU_MEMORY)", wanted));
    return Ended(cudaErrorMemoryAllocation);
  }
  *memory = gpu.memory.Allocate(bytes, !gpu.dry());
  return *memory == nullptr ? Ended(cudaErrorMemoryAllocation) : cudaSuccess;
}
// Waits for all running work: it may use the memory.
cudaError_t cudaFree(void* memory) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  if (memory == nullptr) return cudaSuccess;
  SynchronizeStreams();
  if (!SimulatedGpu::The().memory.Release(memory, DeviceMemory::Kind::kDevice)) return Ended(cudaErrorInvalidValue);
  return Ended(Usable());
}
cudaError_t cudaMallocHost(void** memory, size_t bytes) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  *memory = SimulatedGpu::The().memory.AllocatePinned(bytes);
  return cudaSuccess;
}
cudaError_t cudaFreeHost(void* memory) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  if (memory == nullptr) return cudaSuccess;
  SynchronizeStreams();
  if (!SimulatedGpu::The().memory.Release(memory, DeviceMemory::Kind::kPinned)) return Ended(cudaErrorInvalidValue);
  return Ended(Usable());
}
cudaError_t cudaHostRegister(void* memory, size_t bytes, unsigned) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  if (memory == nullptr || bytes == 0) return Ended(cudaErrorInvalidValue);
  return SimulatedGpu::The().memory.Register(memory, bytes) ? cudaSuccess : Ended(cudaErrorHostMemoryAlreadyRegistered);
}
cudaError_t cudaHostUnregister(void* memory) {
  if (const cudaError_t error = UsableBesideRecording(); error != cudaSuccess) return Ended(error);
  SynchronizeStreams();
  if (!SimulatedGpu::The().memory.Release(memory, DeviceMemory::Kind::kRegistered)) {
    return Ended(cudaErrorHostMemoryNotRegistered);
  }
  return cudaSuccess;
}

}  // extern "C"

namespace temper::cuda {
namespace {

// Bytes of one side of a copy: rows of one width, `pitch` apart.
struct Side {
  const std::byte* data;
  size_t pitch;
};
using Range = DeviceMemory::Range;

bool IsDevice(const Range* range) {
  return range != nullptr && range->kind == DeviceMemory::Kind::kDevice;
}
// Within one allocation, all of it.
bool Holds(const Range* range, const Side& side, size_t width, size_t rows) {
  const auto begin = reinterpret_cast<uint64_t>(side.data);
  return range == nullptr || (rows - 1) * side.pitch + width <= range->end - begin;
}

cudaError_t CopyNow(const Side& to, const Side& from, size_t width, size_t rows) {
  if (SimulatedGpu::The().dry() && width * rows > SimulatedGpu::kDryBytes) return cudaSuccess;
  DeviceMemory& memory = SimulatedGpu::The().memory;
  const auto at = [&](const std::byte* address) {
    if (memory.RangeOf(address) == nullptr) return const_cast<std::byte*>(address);  // the host's own
    return memory.Find(reinterpret_cast<uint64_t>(address), static_cast<int64_t>(width));
  };
  for (size_t row = 0; row < rows; ++row) {
    std::byte *const a = at(to.data + row * to.pitch), *const b = at(from.data + row * from.pitch);
    if (a == nullptr || b == nullptr) {
      SimulatedGpu::The().Fail(cudaErrorIllegalAddress, "a copy of memory that is not there any more");
      return cudaErrorIllegalAddress;
    }
    std::memmove(a, b, width);
  }
  return cudaSuccess;
}

cudaError_t Copy(Side to, Side from, size_t width, size_t rows, cudaMemcpyKind kind, cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return error;
  if (width == 0 || rows == 0) return cudaSuccess;
  const Range *const a = SimulatedGpu::The().memory.RangeOf(to.data), *const b =
                                                                          SimulatedGpu::The().memory.RangeOf(from.data);
  const bool to_device = kind == cudaMemcpyHostToDevice || kind == cudaMemcpyDeviceToDevice,
             from_device = kind == cudaMemcpyDeviceToHost || kind == cudaMemcpyDeviceToDevice;
  if (kind != cudaMemcpyDefault && (to_device != IsDevice(a) || from_device != IsDevice(b))) {
    Say("a copy in another direction than it says");
    return cudaErrorInvalidValue;
  }
  if (!Holds(a, to, width, rows) || !Holds(b, from, width, rows)) {
    Say(fmt::format("a copy of {} times {} bytes beyond the end of an allocation", rows, width));
    return cudaErrorInvalidValue;
  }
  CUstream_st& on = StreamOf(stream);
  const bool from_pageable = b == nullptr, to_pageable = a == nullptr;
  if (on.capture != nullptr && (from_pageable || to_pageable)) {
    on.capture->invalid = true;
    Say("a copy from or to memory that is not pinned cannot be recorded");
    return cudaErrorStreamCaptureUnsupported;
  }
  if (from_pageable && IsDevice(a)) {
    // It is read before the call returns.
    auto staged = std::make_shared<std::vector<std::byte>>(rows * width);
    for (size_t row = 0; row < rows; ++row) {
      std::memcpy(staged->data() + row * width, from.data + row * from.pitch, width);
    }
    on.Enqueue([=] { return CopyNow(to, {staged->data(), width}, width, rows); });
    return cudaSuccess;
  }
  on.Enqueue([=] { return CopyNow(to, from, width, rows); });
  // To pageable memory, and between any memory of the host, it returns when everything has arrived.
  if (to_pageable || (!IsDevice(a) && !IsDevice(b) && on.capture == nullptr)) {
    on.queue->WaitFor(on.queue->enqueued());
    return Usable();
  }
  return cudaSuccess;
}

Side SideOf(const void* data, size_t pitch) {
  return {static_cast<const std::byte*>(data), pitch};
}

}  // namespace
}  // namespace temper::cuda

extern "C" {

cudaError_t cudaMemcpyAsync(void* to, const void* from, size_t bytes, cudaMemcpyKind kind, cudaStream_t stream) {
  return Ended(Copy(SideOf(to, bytes), SideOf(from, bytes), bytes, 1, kind, stream));
}
cudaError_t cudaMemcpy2DAsync(void* to, size_t to_pitch, const void* from, size_t from_pitch, size_t width, size_t rows,
                              cudaMemcpyKind kind, cudaStream_t stream) {
  if (width > to_pitch || width > from_pitch) return Ended(cudaErrorInvalidPitchValue);
  return Ended(Copy(SideOf(to, to_pitch), SideOf(from, from_pitch), width, rows, kind, stream));
}
cudaError_t cudaMemsetAsync(void* memory, int value, size_t bytes, cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (bytes == 0) return cudaSuccess;
  const auto find = [=] {
    return SimulatedGpu::The().memory.Find(reinterpret_cast<uint64_t>(memory), static_cast<int64_t>(bytes));
  };
  if (find() == nullptr) return Ended(cudaErrorInvalidValue);
  StreamOf(stream).Enqueue([=] {
    std::byte* const at = find();
    if (at == nullptr) return cudaErrorIllegalAddress;
    if (!SimulatedGpu::The().dry() || bytes <= SimulatedGpu::kDryBytes) std::memset(at, value, bytes);
    return cudaSuccess;
  });
  return cudaSuccess;
}

// Streams.

// Of an H200.
cudaError_t cudaDeviceGetStreamPriorityRange(int* least, int* greatest) {
  *least = 0, *greatest = -5;
  return Ended(Usable());
}
// Only order is simulated, not what starts first.
cudaError_t cudaStreamCreateWithPriority(cudaStream_t* stream, unsigned flags, int) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (flags != cudaStreamNonBlocking) {
    Say("streams that wait for the default stream are not simulated");
    return Ended(cudaErrorInvalidValue);
  }
  *stream = new CUstream_st;
  return cudaSuccess;
}
cudaError_t cudaStreamDestroy(cudaStream_t stream) {
  if (stream == nullptr) return Ended(cudaErrorInvalidResourceHandle);
  stream->queue->WaitFor(stream->queue->enqueued());
  delete stream;
  return Ended(Usable());
}
cudaError_t cudaStreamSynchronize(cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  CUstream_st& on = StreamOf(stream);
  if (on.capture != nullptr) {
    on.capture->invalid = true;
    return Ended(cudaErrorStreamCaptureUnsupported);
  }
  on.queue->WaitFor(on.queue->enqueued());
  return Ended(Usable());
}
cudaError_t cudaStreamWaitEvent(cudaStream_t stream, cudaEvent_t event, unsigned) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  CUstream_st& on = StreamOf(stream);
  if (event->capture != nullptr || on.capture != nullptr) {
    if (event->capture == on.capture.get() || (event->capture == nullptr && event->queue == nullptr)) {
      return cudaSuccess;  // a capture has the order of its stream
    }
    if (on.capture != nullptr) on.capture->invalid = true;
    return Ended(cudaErrorStreamCaptureIsolation);
  }
  if (event->queue == nullptr) return cudaSuccess;
  on.Enqueue([queue = event->queue, position = event->position] {
    queue->WaitFor(position);
    return cudaSuccess;
  });
  return cudaSuccess;
}

// Events.

cudaError_t cudaEventCreateWithFlags(cudaEvent_t* event, unsigned flags) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  *event = new CUevent_st{.flags = flags, .queue = {}, .time = {}};
  return cudaSuccess;
}
cudaError_t cudaEventDestroy(cudaEvent_t event) {
  delete event;
  return Ended(Usable());
}
cudaError_t cudaEventRecord(cudaEvent_t event, cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  CUstream_st& on = StreamOf(stream);
  event->capture = on.capture.get();
  if (on.capture != nullptr) return cudaSuccess;
  event->time = std::make_shared<std::chrono::steady_clock::time_point>();
  on.Enqueue([time = event->time, queue = on.queue.get()] {
    *time = std::chrono::steady_clock::now() + queue->passed;
    return cudaSuccess;
  });
  event->queue = on.queue;
  event->position = on.queue->enqueued();
  return cudaSuccess;
}
cudaError_t cudaEventSynchronize(cudaEvent_t event) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (event->capture != nullptr) return Ended(cudaErrorCapturedEvent);
  if (event->queue != nullptr) event->queue->WaitFor(event->position);
  return Ended(Usable());
}
cudaError_t cudaEventElapsedTime(float* milliseconds, cudaEvent_t from, cudaEvent_t to) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  for (const CUevent_st* event : {from, to}) {
    if (event->queue == nullptr || (event->flags & cudaEventDisableTiming) != 0) {
      return Ended(cudaErrorInvalidResourceHandle);
    }
    if (!event->queue->IsDone(event->position)) return Ended(cudaErrorNotReady);
  }
  *milliseconds = std::chrono::duration<float, std::milli>(*to->time - *from->time).count();
  return cudaSuccess;
}

// Recordings.

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (stream == nullptr) return Ended(cudaErrorStreamCaptureUnsupported);
  if (mode != cudaStreamCaptureModeThreadLocal || RecordedHere() != nullptr || stream->capture != nullptr) {
    return Ended(cudaErrorIllegalState);
  }
  stream->capture = std::make_unique<Capture>();
  RecordedHere() = stream;
  return cudaSuccess;
}
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  *graph = nullptr;
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  if (stream->capture == nullptr) return Ended(cudaErrorIllegalState);
  if (RecordedHere() != stream) return Ended(cudaErrorStreamCaptureWrongThread);
  const std::unique_ptr<Capture> capture = std::move(stream->capture);
  RecordedHere() = nullptr;
  if (capture->invalid) return Ended(cudaErrorStreamCaptureInvalidated);
  *graph = new CUgraph_st{std::move(capture->work)};
  return cudaSuccess;
}
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* executable, cudaGraph_t graph, unsigned long long) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  *executable = new CUgraphExec_st{graph->work};
  return cudaSuccess;
}
cudaError_t cudaGraphLaunch(cudaGraphExec_t executable, cudaStream_t stream) {
  if (const cudaError_t error = Usable(); error != cudaSuccess) return Ended(error);
  for (const Work& work : executable->work) StreamOf(stream).Enqueue(work);
  return cudaSuccess;
}
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t executable) {
  delete executable;
  return cudaSuccess;
}
cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete graph;
  return cudaSuccess;
}

}  // extern "C"
