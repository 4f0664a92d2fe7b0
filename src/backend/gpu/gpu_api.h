// One name for what CUDA and HIP call differently, and for what the emulator (emulator/simt.h) puts in their place: the
// only file of this folder that knows which of them compiles it. Kernels are written in CUDA's dialect with these
// exceptions:
//   TEMPER_SHARED(float, tile, 256);                        shared memory, of constant size
//   TEMPER_WINDOW(float, tile, 256);                        more than 48 KiB of it: one per kernel, 1 KiB-aligned
//   TEMPER_LAUNCH(name, blocks, threads, stream, args...)   a Status; blocks: unsigned or dim3
//   TEMPER_LAUNCH_WINDOW(name, blocks, threads, bytes, stream, args...)
//                                                           with a window of so many bytes, which AllowWindow granted
//   TEMPER_LAUNCH_BOUNDS(256, 2)                            __launch_bounds__; on AMD registers for 2 waves a SIMD
//   TEMPER_SYNC_SHARED()                                    __syncthreads for shared memory: loads from memory go on
//   WarpSize(), ShuffleXor(x, mask)                         32 lanes or 64: no kernel may assume either
//   PackBf16(low, high)                                    rounds two f32 in one instruction, where there is one
//   Exp, Exp2, Exp2Flush, Log, Erfc, Tanh, Fma, Sqrt, Reciprocal  of f32; see below what they promise
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
#define __launch_bounds__(...)
#define TEMPER_LAUNCH_BOUNDS(threads, waves)
#define TEMPER_UNROLL
#define TEMPER_NO_UNROLL
#define threadIdx (::temper::simt::Here().thread)
#define blockIdx (::temper::simt::Here().block)
#define blockDim (::temper::simt::Here().block_dim)
#define gridDim (::temper::simt::Here().grid_dim)
#define __syncthreads() ::temper::simt::Barrier(__LINE__)
#define TEMPER_SYNC_SHARED() ::temper::simt::Barrier(__LINE__)
#define TEMPER_SHARED(type, name, count) const ::temper::simt::SharedArray<type> name((count), __LINE__)
#define TEMPER_WINDOW TEMPER_SHARED

namespace temper::gpu {

using gpuDim3 = simt::Dim3;
// A stream of the emulator does its work at once; it only says on which machine.
using gpuStream_t = const simt::Machine*;
template <class T>
using Shared = const simt::SharedArray<T>&;

inline int WarpSize() {
  return simt::WarpSize();
}
// Which matrix units code is made for: NVIDIA's (matrix_unit.h), Hopper's own (warpgroup_unit.h), AMD's (mfma.h).
#define TEMPER_MMA 0
#define TEMPER_WGMMA 0
#define TEMPER_MFMA 1
inline bool HasMfma(gpuStream_t stream) {
  return stream->warp_size == 64;
}
template <class T>
T ShuffleXor(T x, int mask) {
  return simt::ShuffleXor(x, mask, __LINE__);
}

// As wrong as CUDA's documentation allows its own to be (2, 1, 4 and 2 units in the last place), so that a tolerance
// that holds here holds there.
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
inline float Tanh(float x) {
  const float y = std::tanh(x);
  return std::fabs(y) < 0.99f ? Nudge(y, 2) : y;  // never beyond 1
}
inline float Exp2(float x) {
  return x == 0 ? 1 : Nudge(std::exp2(x), 2);
}
inline float Exp2Flush(float x) {
  const float y = Exp2(x);
  return y < 0x1p-126f ? 0 : y;
}
inline float Reciprocal(float x) {
  return x == 1 ? 1 : Nudge(1 / x, 1);
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
#define TEMPER_LAUNCH_WINDOW(name, blocks, threads, bytes, stream, ...) \
  TEMPER_LAUNCH(name, blocks, threads, stream, __VA_ARGS__)
template <class... Parameters>
bool AllowWindow(void (*)(Parameters...), int bytes) {
  return bytes <= (227 << 10);  // Hopper's
}

}  // namespace temper::gpu

#else  // a real GPU
#if defined(__HIP__) || defined(__HIP_PLATFORM_AMD__)
#include <hip/hip_runtime.h>
#define TEMPER_HIP  // compiled by hipcc, or, where it is only the host's code, by the host's compiler
#define TEMPER_LAUNCH_BOUNDS(threads, waves) __launch_bounds__(threads, waves)
#define TEMPER_SYNC_SHARED() asm volatile("s_waitcnt lgkmcnt(0)\n\ts_barrier" : : : "memory")
#define TEMPER_GPU_NAME(name) hip##name
#else
#include <cuda_runtime.h>
#define TEMPER_LAUNCH_BOUNDS(threads, waves) __launch_bounds__(threads)
#define TEMPER_SYNC_SHARED() __syncthreads()
#define TEMPER_GPU_NAME(name) cuda##name
#endif

#define TEMPER_UNROLL _Pragma("unroll")
#define TEMPER_NO_UNROLL _Pragma("unroll 1")
#define TEMPER_SHARED(type, name, count) __shared__ __align__(16) type name[count]
#define TEMPER_WINDOW(type, name, count) extern __shared__ __align__(1024) type name[]

namespace temper::gpu {

using gpuDim3 = dim3;
using gpuStream_t = TEMPER_GPU_NAME(Stream_t);
using gpuError_t = TEMPER_GPU_NAME(Error_t);
inline constexpr gpuError_t gpuSuccess = TEMPER_GPU_NAME(Success);
#if defined(TEMPER_HIP)
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

#if defined(TEMPER_HIP)
#define TEMPER_MMA 0
#define TEMPER_WGMMA 0
#define TEMPER_MFMA 1
inline bool HasMfma(gpuStream_t) {  // CDNA2 and later: others have no products of bf16 in this form
  int device = 0;
  hipDeviceProp_t found = {};
  if (hipGetDevice(&device) != hipSuccess || hipGetDeviceProperties(&found, device) != hipSuccess) return false;
  const std::string name = found.gcnArchName;  // gfx90a:sramecc+:xnack-
  return name.starts_with("gfx90a") || name.starts_with("gfx94") || name.starts_with("gfx950");
}
#if defined(__HIP__)
__device__ inline int WarpSize() {
  return warpSize;
}
template <class T>
__device__ T ShuffleXor(T x, int mask) {
  return __shfl_xor(x, mask);
}
#endif
#else
#define TEMPER_MMA 1
#define TEMPER_WGMMA 1
#define TEMPER_MFMA 0
inline bool IsHopper() {  // compute capability 9.0: neither older GPUs nor newer ones have its warpgroups' units
  int device = 0, major = 0, minor = 0;
  return cudaGetDevice(&device) == cudaSuccess &&
         cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device) == cudaSuccess &&
         cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, device) == cudaSuccess && major == 9 &&
         minor == 0;
}
inline bool HasWgmma(gpuStream_t) {
#if defined(TEMPER_SM90A)  // without it there is no code that names them
  return IsHopper();
#else
  return false;
#endif
}
template <class... Parameters>
bool AllowWindow(void (*kernel)(Parameters...), int bytes) {
  if (cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, bytes) == cudaSuccess) return true;
  (void)cudaGetLastError();  // or the next launch would be told of it
  return false;
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
__device__ inline float Tanh(float x) {
  return tanhf(x);
}
__device__ inline float Exp2(float x) {
  return exp2f(x);
}
// One instruction, 2 units in the last place; 0 where the result has no normal number.
__device__ __forceinline__ float Exp2Flush(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(__HIP_DEVICE_COMPILE__) && __has_builtin(__builtin_amdgcn_exp2f)
  return __builtin_amdgcn_exp2f(x);
#else
  return __builtin_exp2f(x);  // that same instruction before clang 17
#endif
}
// One instruction, 1 unit in the last place; of normal numbers that have a normal reciprocal, and of NaN.
__device__ __forceinline__ float Reciprocal(float x) {
#if defined(__CUDA_ARCH__)
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
#elif defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_rcpf(x);
#else
  return 1 / x;
#endif
}

// The runtime's functions, under one name.
#define TEMPER_GPU_FUNCTION(name)               \
  template <class... A>                         \
  auto gpu##name(A... arguments) {              \
    return TEMPER_GPU_NAME(name)(arguments...); \
  }
TEMPER_GPU_FUNCTION(DeviceGetPCIBusId)
TEMPER_GPU_FUNCTION(DeviceGetStreamPriorityRange)
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
TEMPER_GPU_FUNCTION(StreamCreateWithPriority)
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
#if defined(TEMPER_HIP)
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
#if defined(TEMPER_HIP)
  return hipHostMalloc(memory, bytes, hipHostMallocDefault);
#else
  return cudaMallocHost(memory, bytes);
#endif
}

inline gpuError_t gpuFreeHost(void* memory) {
#if defined(TEMPER_HIP)
  return hipHostFree(memory);
#else
  return cudaFreeHost(memory);
#endif
}
inline gpuError_t gpuGraphInstantiate(gpuGraphExec_t* executable, gpuGraph_t graph) {
#if defined(TEMPER_HIP)
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
#if defined(TEMPER_HIP)
  const bool no_code = error == hipErrorNoBinaryForGpu || error == hipErrorInvalidDeviceFunction;
#else
  const bool no_code = error == cudaErrorNoKernelImageForDevice || error == cudaErrorInvalidDeviceFunction;
#endif
  std::string message = std::string(name) + (IsOfEarlierKernel(error) ? ", after a kernel that failed: " : ": ") +
                        TEMPER_GPU_NAME(GetErrorString)(error);
  return no_code ? Unsupported(std::move(message)) : IoError(std::move(message));
}
#define TEMPER_LAUNCH(name, blocks, threads, stream, ...) \
  (name<<<blocks, threads, 0, stream>>>(__VA_ARGS__),     \
   ::temper::gpu::LaunchStatus(#name, TEMPER_GPU_NAME(GetLastError)()))
#define TEMPER_LAUNCH_WINDOW(name, blocks, threads, bytes, stream, ...) \
  (name<<<blocks, threads, bytes, stream>>>(__VA_ARGS__),               \
   ::temper::gpu::LaunchStatus(#name, TEMPER_GPU_NAME(GetLastError)()))

}  // namespace temper::gpu

#endif

namespace temper::gpu {

// The lower, the upper halves of two words.
__device__ __forceinline__ uint32_t LowerHalves(uint32_t low, uint32_t high) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_perm(high, low, 0x05040100);
#else
  return (low & 0xFFFF) | high << 16;
#endif
}
__device__ __forceinline__ uint32_t UpperHalves(uint32_t low, uint32_t high) {
#if defined(__HIP_DEVICE_COMPILE__)
  return __builtin_amdgcn_perm(high, low, 0x07060302);
#else
  return low >> 16 | (high & 0xFFFF0000);
#endif
}

// Two bf16 in a word, `low` in its lower half; both rounded to the nearest, ties to even.
__device__ __forceinline__ uint32_t PackBf16(float low, float high) {
#if defined(__CUDA_ARCH__)
  uint32_t both;
  asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(both) : "f"(high), "f"(low));
  return both;
#else
  // Without a branch per number. NaN becomes 0x7FFF, as by the instruction above.
  const auto rounded = [](float x) {
    const auto u = __builtin_bit_cast(uint32_t, x);
    return x != x ? 0x7FFFFFFF : u + 0x7FFF + ((u >> 16) & 1);
  };
  return UpperHalves(rounded(low), rounded(high));
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
