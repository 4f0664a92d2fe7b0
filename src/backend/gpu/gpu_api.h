// One name for what CUDA and HIP call differently, and for what the emulator (emulator/simt.h) puts in their place: the
// only file of this folder that knows which of them compiles it. Kernels are written in CUDA's dialect with these
// exceptions:
//   TEMPER_SHARED(float, tile, 256);                        shared memory, of constant size
//   TEMPER_LAUNCH(name, blocks, threads, stream, args...)   a Status; blocks: unsigned or dim3
//   WarpSize(), ShuffleXor(x, mask)                         32 lanes or 64: no kernel may assume either
//   PackBf16(low, high)                                    rounds two f32 in one instruction, where there is one
//   Exp, Exp2, Log, Erfc, Fma, Sqrt                         of f32; see below what they promise
// Contraction is off (-fmad=false, -ffp-contract=off): an fma stands where Fma is written.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <string>
#include <utility>

#include "base/status.h"
#include "tensor/dtype.h"

#if defined(TEMPER_GPU_EMULATED)

#include "backend/gpu/emulator/simt.h"

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(threads)
#define TEMPER_UNROLL
#define TEMPER_NO_UNROLL
#define threadIdx (::temper::simt::Here().thread)
#define blockIdx (::temper::simt::Here().block)
#define blockDim (::temper::simt::Here().block_dim)
#define gridDim (::temper::simt::Here().grid_dim)
#define __syncthreads() ::temper::simt::Barrier(__LINE__)
#define TEMPER_SHARED(type, name, count) const ::temper::simt::SharedArray<type> name((count), __LINE__)

namespace temper::gpu {

using gpuDim3 = simt::Dim3;
// A stream of the emulator does its work at once; it only says on which machine.
using gpuStream_t = const simt::Machine*;
template <class T>
using Shared = const simt::SharedArray<T>&;

inline int WarpSize() {
  return simt::WarpSize();
}
// Whether matrix_unit.h can be compiled, and used by what runs on the stream.
#define TEMPER_MATRIX_UNITS 1
inline bool HasMatrixUnits(gpuStream_t stream) {
  return stream->warp_size == 32;
}
template <class T>
T ShuffleXor(T x, int mask) {
  return simt::ShuffleXor(x, mask, __LINE__);
}

// As wrong as CUDA's documentation allows its own to be (2, 1 and 4 units in the last place), so that a tolerance that
// holds here holds there.
inline float Nudge(float x, int ulps) {
  if (!(std::fabs(x) >= 0x1p-120f) || std::isinf(x)) return x;
  const int32_t bits = std::bit_cast<int32_t>(x);
  return std::bit_cast<float>(bits + ((bits >> 3) % 2 == 0 ? ulps : -ulps));
}
inline float Exp(float x) {
  return x == 0 ? 1 : Nudge(std::exp(x), 2);
}
inline float Log(float x) {
  return Nudge(std::log(x), 1);
}
inline float Erfc(float x) {
  return Nudge(std::erfc(x), 4);
}
inline float Exp2(float x) {
  return x == 0 ? 1 : Nudge(std::exp2(x), 2);
}

inline Status LaunchStatus(const char* name, const std::string& fault) {
  return fault.empty() ? OkStatus() : InvalidArgument(std::string(name) + ": " + fault);
}
// Parameters are evaluated once, by the host, and passed by value: as a launch does.
template <class... Parameters, class... Arguments>
std::function<void()> Bind(void (*kernel)(Parameters...), const Arguments&... arguments) {
  return [kernel, ... given = static_cast<Parameters>(arguments)] { kernel(given...); };
}
#define TEMPER_LAUNCH(name, blocks, threads, stream, ...)                                                       \
  ::temper::gpu::LaunchStatus(                                                                                  \
      #name, ::temper::simt::Launch(*(stream), ::temper::gpu::gpuDim3{blocks}, ::temper::gpu::gpuDim3{threads}, \
                                    ::temper::gpu::Bind(name, __VA_ARGS__)))

}  // namespace temper::gpu

#else  // a real GPU

#if defined(__HIP__) || defined(__HIPCC__)
#include <hip/hip_runtime.h>
#define TEMPER_GPU_NAME(name) hip##name
#else
#include <cuda_runtime.h>
#define TEMPER_GPU_NAME(name) cuda##name
#endif

#define TEMPER_UNROLL _Pragma("unroll")
#define TEMPER_NO_UNROLL _Pragma("unroll 1")
#define TEMPER_SHARED(type, name, count) __shared__ __align__(16) type name[count]

namespace temper::gpu {

using gpuDim3 = dim3;
using gpuStream_t = TEMPER_GPU_NAME(Stream_t);
using gpuError_t = TEMPER_GPU_NAME(Error_t);
inline constexpr gpuError_t gpuSuccess = TEMPER_GPU_NAME(Success);
#if defined(__HIP__) || defined(__HIPCC__)
using gpuDeviceProp = hipDeviceProp_t;
#else
using gpuDeviceProp = cudaDeviceProp;
#endif
inline constexpr auto gpuErrorInsufficientDriver = TEMPER_GPU_NAME(ErrorInsufficientDriver);
inline constexpr auto gpuErrorNoDevice = TEMPER_GPU_NAME(ErrorNoDevice);
inline constexpr auto gpuErrorMemoryAllocation = TEMPER_GPU_NAME(ErrorMemoryAllocation);
inline constexpr auto gpuMemcpyHostToDevice = TEMPER_GPU_NAME(MemcpyHostToDevice);
inline constexpr auto gpuMemcpyDeviceToHost = TEMPER_GPU_NAME(MemcpyDeviceToHost);
inline constexpr auto gpuMemcpyDefault = TEMPER_GPU_NAME(MemcpyDefault);
inline constexpr unsigned gpuHostRegisterPortable = TEMPER_GPU_NAME(HostRegisterPortable);
using gpuEvent_t = TEMPER_GPU_NAME(Event_t);
inline constexpr unsigned gpuEventBlockingSync = TEMPER_GPU_NAME(EventBlockingSync);
using gpuGraph_t = TEMPER_GPU_NAME(Graph_t);
using gpuGraphExec_t = TEMPER_GPU_NAME(GraphExec_t);
inline constexpr auto gpuStreamCaptureModeThreadLocal = TEMPER_GPU_NAME(StreamCaptureModeThreadLocal);
inline constexpr unsigned gpuStreamNonBlocking = TEMPER_GPU_NAME(StreamNonBlocking);
template <class T>
using Shared = T*;

#if defined(__HIP__) || defined(__HIPCC__)
#define TEMPER_MATRIX_UNITS 0
inline bool HasMatrixUnits(gpuStream_t) {
  return false;
}
__device__ inline int WarpSize() {
  return warpSize;
}
template <class T>
__device__ T ShuffleXor(T x, int mask) {
  return __shfl_xor(x, mask);
}
#else
#define TEMPER_MATRIX_UNITS 1
inline bool HasMatrixUnits(gpuStream_t) {
  return true;
}
__device__ constexpr int WarpSize() {
  return 32;
}
template <class T>
__device__ T ShuffleXor(T x, int mask) {
  return __shfl_xor_sync(0xFFFFFFFFu, x, mask);
}
#endif

__device__ inline float Exp(float x) {
  return expf(x);
}
__device__ inline float Log(float x) {
  return logf(x);
}
__device__ inline float Erfc(float x) {
  return erfcf(x);
}
__device__ inline float Exp2(float x) {
  return exp2f(x);
}

// The runtime's functions, under one name.
#define TEMPER_GPU_FUNCTION(name)               \
  template <class... A>                         \
  auto gpu##name(A... arguments) {              \
    return TEMPER_GPU_NAME(name)(arguments...); \
  }
TEMPER_GPU_FUNCTION(DeviceGetPCIBusId)
TEMPER_GPU_FUNCTION(EventCreateWithFlags)
TEMPER_GPU_FUNCTION(EventDestroy)
TEMPER_GPU_FUNCTION(EventElapsedTime)
TEMPER_GPU_FUNCTION(EventRecord)
TEMPER_GPU_FUNCTION(EventSynchronize)
TEMPER_GPU_FUNCTION(Free)
TEMPER_GPU_FUNCTION(GetDeviceCount)
TEMPER_GPU_FUNCTION(GetDeviceProperties)
TEMPER_GPU_FUNCTION(GetErrorString)
TEMPER_GPU_FUNCTION(GraphDestroy)
TEMPER_GPU_FUNCTION(GraphExecDestroy)
TEMPER_GPU_FUNCTION(GraphLaunch)
TEMPER_GPU_FUNCTION(StreamBeginCapture)
TEMPER_GPU_FUNCTION(StreamEndCapture)
TEMPER_GPU_FUNCTION(GetLastError)
TEMPER_GPU_FUNCTION(HostRegister)
TEMPER_GPU_FUNCTION(HostUnregister)
TEMPER_GPU_FUNCTION(MemGetInfo)
TEMPER_GPU_FUNCTION(Memcpy2DAsync)
TEMPER_GPU_FUNCTION(MemcpyAsync)
TEMPER_GPU_FUNCTION(MemsetAsync)
TEMPER_GPU_FUNCTION(SetDevice)
TEMPER_GPU_FUNCTION(StreamCreateWithFlags)
TEMPER_GPU_FUNCTION(StreamDestroy)
TEMPER_GPU_FUNCTION(StreamSynchronize)
TEMPER_GPU_FUNCTION(StreamWaitEvent)
TEMPER_GPU_FUNCTION(DriverGetVersion)
TEMPER_GPU_FUNCTION(RuntimeGetVersion)
#undef TEMPER_GPU_FUNCTION
inline gpuError_t gpuGetDevice(int* index) {
  return TEMPER_GPU_NAME(GetDevice)(index);
}
inline gpuError_t gpuMalloc(void** memory, size_t bytes) {
  return TEMPER_GPU_NAME(Malloc)(memory, bytes);
}
// What no other device of any machine has.
inline gpuError_t gpuDeviceUuid(int index, std::array<unsigned char, 16>* uuid) {
#if defined(__HIP__) || defined(__HIPCC__)
  hipUUID found = {};
  const gpuError_t error = hipDeviceGetUuid(&found, index);
  std::copy_n(found.bytes, uuid->size(), uuid->begin());
#else
  cudaDeviceProp found = {};
  const gpuError_t error = cudaGetDeviceProperties(&found, index);
  std::copy_n(found.uuid.bytes, uuid->size(), uuid->begin());
#endif
  return error;
}
// Pinned memory of the host.
inline gpuError_t gpuMallocHost(void** memory, size_t bytes) {
#if defined(__HIP__) || defined(__HIPCC__)
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
#else
  return cudaMallocHost(memory, bytes);
#endif
}

inline gpuError_t gpuFreeHost(void* memory) {
#if defined(__HIP__) || defined(__HIPCC__)
  return hipHostFree(memory);
#else
  return cudaFreeHost(memory);
#endif
}
inline gpuError_t gpuGraphInstantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
#if defined(__HIP__) || defined(__HIPCC__)
  return hipGraphInstantiate(executable, graph, nullptr, nullptr, 0);
#else
  return cudaGraphInstantiate(executable, graph, 0);
#endif
}

// Whether a kernel that ran has failed: from then on every call returns this error, whatever it was to do. CUDA and HIP
// number these alike: memory and links that fail (214, 220, 226), an illegal address, a timeout, an assertion, and 714
// to 721 but for a launch that is too large: illegal instructions, misaligned addresses, what has no other name.
inline bool IsOfEarlierKernel(gpuError_t error) {
  const int code = static_cast<int>(error);
  return code == 214 || code == 220 || code == 226 || code == 700 || code == 702 || code == 710 ||
         (code >= 714 && code <= 721 && code != 720);
}

// Unsupported: what was built holds no code for this GPU.
inline Status LaunchStatus(const char* name, gpuError_t error) {
  if (error == gpuSuccess) return OkStatus();
#if defined(__HIP__) || defined(__HIPCC__)
  const bool no_code = error == hipErrorNoBinaryForGpu || error == hipErrorInvalidDeviceFunction;
#else
  const bool no_code = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
#endif
  std::string message = std::string(name) + (IsOfEarlierKernel(error) ? ", after a kernel that failed: " : ": ") +
                        TEMPER_GPU_NAME(GetErrorString)(error);
  return no_code ? Unsupported(std::move(message)) : InvalidArgument(std::move(message));
}
#define TEMPER_LAUNCH(name, blocks, threads, stream, ...) \
  (name<<<blocks, threads, 0, stream>>>(__VA_ARGS__),     \
   ::temper::gpu::LaunchStatus(#name, TEMPER_GPU_NAME(GetLastError)()))

}  // namespace temper::gpu

#endif

namespace temper::gpu {

// Two bf16 in a word, `low` in its lower half; both rounded to the nearest, ties to even.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  return uint32_t{ToBF16(low).bits} | uint32_t{ToBF16(high).bits} << 16;
#endif
}

// Rounded once, and as IEEE 754 says: fma, square root and (in kernels' text) division.
__device__ inline float Fma(float a, float b, float c) {
  return fmaf(a, b, c);
}
__device__ inline float Sqrt(float x) {
  return sqrtf(x);
}

}  // namespace temper::gpu
