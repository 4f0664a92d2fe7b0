// Errors of the calling code that the simulated runtime promises to reveal.
#include <cuda_runtime_api.h>
#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <memory>
#include <vector>

#include "../../apart_stream.h"

namespace temper::cuda_runtime_test {
namespace {

constexpr size_t kBytes = 1000;

// Pinned or device memory, and streams, released at the end.
class CudaRuntime : public testing::Test {
 protected:
  void SetUp() override {
    ASSERT_EQ(cudaStreamCreateWithPriority(&stream_, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaStreamCreateWithPriority(&other_, cudaStreamNonBlocking, 0), cudaSuccess);
    ASSERT_EQ(cudaMalloc(&device_, kBytes), cudaSuccess);
    ASSERT_EQ(cudaMallocHost(&pinned_, kBytes), cudaSuccess);
  }
  void TearDown() override {
    (void)cudaFree(device_);
    (void)cudaFreeHost(pinned_);
    (void)cudaStreamDestroy(stream_);
    (void)cudaStreamDestroy(other_);
  }
  unsigned char* pinned() const { return static_cast<unsigned char*>(pinned_); }
  // All bytes of the device's memory, through pageable memory.
  std::vector<unsigned char> OnDevice() const {
    std::vector<unsigned char> bytes(kBytes);
    EXPECT_EQ(cudaMemcpyAsync(bytes.data(), device_, kBytes, cudaMemcpyDeviceToHost, stream_), cudaSuccess);
    return bytes;
  }

  cudaStream_t stream_ = nullptr, other_ = nullptr;
  void *device_ = nullptr, *pinned_ = nullptr;
};
using CudaRuntimeDeathTest = CudaRuntime;

TEST_F(CudaRuntimeDeathTest, TheHostCannotTouchTheDevicesMemory) {
  EXPECT_DEATH(static_cast<volatile char*>(device_)[0] = 1, "");
}

TEST_F(CudaRuntime, NewMemoryHoldsNan) {
  EXPECT_EQ(OnDevice(), std::vector<unsigned char>(kBytes, 0xFF));
  float x = 0;
  std::memcpy(&x, pinned_, sizeof(x));
  EXPECT_NE(x, x);
}

TEST_F(CudaRuntime, PinnedMemoryIsReadWhenTheCopysTurnComesAndPageableMemoryAtOnce) {
  std::memset(pinned_, 1, kBytes);
  EXPECT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  std::memset(pinned_, 2, kBytes);
  EXPECT_EQ(OnDevice(), std::vector<unsigned char>(kBytes, 2));
  std::vector<unsigned char> pageable(kBytes, 3);
  EXPECT_EQ(cudaMemcpyAsync(device_, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  pageable.assign(kBytes, 4);
  EXPECT_EQ(OnDevice(), std::vector<unsigned char>(kBytes, 3));
}

TEST_F(CudaRuntime, WithoutAnEventStreamsAreInNoOrder) {
  cudaEvent_t written = nullptr;
  ASSERT_EQ(cudaEventCreateWithFlags(&written, cudaEventDisableTiming), cudaSuccess);
  for (const bool waits : {false, true}) {
    ASSERT_EQ(cudaMemsetAsync(device_, 1, kBytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(stream_), cudaSuccess);
    ASSERT_EQ(cudaMemsetAsync(device_, 2, kBytes, stream_), cudaSuccess);
    ASSERT_EQ(cudaEventRecord(written, stream_), cudaSuccess);
    if (waits) {
      ASSERT_EQ(cudaStreamWaitEvent(other_, written, 0), cudaSuccess);
    }
    ASSERT_EQ(cudaMemcpyAsync(pinned_, device_, kBytes, cudaMemcpyDeviceToHost, other_), cudaSuccess);
    ASSERT_EQ(cudaStreamSynchronize(other_), cudaSuccess);
    EXPECT_EQ(pinned()[kBytes - 1], waits ? 2 : 1);
  }
  EXPECT_EQ(cudaEventDestroy(written), cudaSuccess);
}

TEST_F(CudaRuntime, ACopyBeyondAnAllocationIsRefused) {
  auto* const device = static_cast<char*>(device_);
  EXPECT_EQ(cudaMemcpyAsync(device + 1, pinned_, kBytes, cudaMemcpyHostToDevice, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpy2DAsync(device, 500, pinned_, 400, 400, 3, cudaMemcpyDefault, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemcpyAsync(device, pinned_, kBytes, cudaMemcpyDeviceToHost, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaMemsetAsync(device, 0, kBytes + 1, stream_), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaErrorInvalidValue);
  EXPECT_EQ(cudaGetLastError(), cudaSuccess);
}

TEST_F(CudaRuntime, ARecordingDoesNothingUntilItIsLaunchedAndThenWhatItRecorded) {
  ASSERT_EQ(cudaMemsetAsync(device_, 0, kBytes, stream_), cudaSuccess);
  ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
  ASSERT_EQ(cudaMemcpyAsync(device_, pinned_, kBytes, cudaMemcpyHostToDevice, stream_), cudaSuccess);
  cudaGraph_t graph = nullptr;
  cudaGraphExec_t executable = nullptr;
  ASSERT_EQ(cudaStreamEndCapture(stream_, &graph), cudaSuccess);
  ASSERT_EQ(cudaGraphInstantiate(&executable, graph, 0), cudaSuccess);
  EXPECT_EQ(OnDevice(), std::vector<unsigned char>(kBytes, 0));
  for (const unsigned char value : {1, 2}) {
    std::memset(pinned_, value, kBytes);
    ASSERT_EQ(cudaGraphLaunch(executable, stream_), cudaSuccess);
    EXPECT_EQ(OnDevice(), std::vector<unsigned char>(kBytes, value));
  }
  EXPECT_EQ(cudaGraphExecDestroy(executable), cudaSuccess);
  EXPECT_EQ(cudaGraphDestroy(graph), cudaSuccess);
}

TEST_F(CudaRuntime, WhatMightWaitSpoilsARecording) {
  std::vector<char> pageable(kBytes);
  void* memory = nullptr;
  const std::array<std::function<cudaError_t()>, 4> calls = {
      [&] { return cudaStreamSynchronize(stream_); },
      [&] { return cudaMalloc(&memory, kBytes); },
      [&] { return cudaFree(device_); },
      [&] { return cudaMemcpyAsync(device_, pageable.data(), kBytes, cudaMemcpyHostToDevice, stream_); },
  };
  for (const auto& call : calls) {
    ASSERT_EQ(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), cudaSuccess);
    EXPECT_EQ(call(), cudaErrorStreamCaptureUnsupported);
    cudaGraph_t graph = nullptr;
    EXPECT_EQ(cudaStreamEndCapture(stream_, &graph), cudaErrorStreamCaptureInvalidated);
    EXPECT_EQ(graph, nullptr);
  }
}

// In a process of its own: the error sticks.
TEST_F(CudaRuntimeDeathTest, AFailureIsToldByEveryCallAfterIt) {
  const auto fail = [&] {
    const auto& handle = *reinterpret_cast<const ApartStreamHandle*>(stream_);
    handle.enqueue(
        handle.stream, [](void*) { return "a library's kernel failed"; }, [](void*) {}, nullptr);
    const bool stuck = cudaStreamSynchronize(stream_) == cudaErrorLaunchFailure &&
                       cudaMemsetAsync(device_, 0, kBytes, other_) == cudaErrorLaunchFailure &&
                       cudaSetDevice(0) == cudaErrorLaunchFailure && cudaGetLastError() == cudaErrorLaunchFailure &&
                       cudaGetLastError() == cudaErrorLaunchFailure;
    std::quick_exit(stuck ? 7 : 1);
  };
  testing::FLAGS_gtest_death_test_style = "threadsafe";
  EXPECT_EXIT(fail(), testing::ExitedWithCode(7), "a library's kernel failed");
}

}  // namespace
}  // namespace temper::cuda_runtime_test
