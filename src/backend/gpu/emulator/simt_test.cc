// The emulator runs what a GPU would run, and finds what a GPU would silently get wrong.
#include "backend/gpu/emulator/simt.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "backend/gpu/gpu_api.h"
#include "backend/gpu/reduce.h"

namespace temper::simt::simt_test {
namespace {

using gpu::kBlockThreads, gpu::kMostWarps, gpu::ReduceBlock, gpu::Shared, gpu::ShuffleXor;

const Machine kMachines[] = {{32, 0}, {64, 0}, {32, 1}, {64, 12345}};

void WritePlaces(std::vector<int>* y) {
  const unsigned block = blockIdx.x + gridDim.x * (blockIdx.y + gridDim.y * blockIdx.z);
  const unsigned thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
  (*y)[block * blockDim.x * blockDim.y * blockDim.z + thread] += static_cast<int>(thread) + 1;
}

TEST(Simt, RunsEveryThreadOfEveryBlockOnce) {
  for (const Machine& machine : kMachines) {
    std::vector<int> y(2 * 3 * 2 * 60, 0);
    EXPECT_EQ(Launch(machine, {2, 3, 2}, {5, 4, 3}, [&] { WritePlaces(&y); }), "");
    for (size_t i = 0; i < y.size(); ++i) EXPECT_EQ(y[i], static_cast<int>(i % 60) + 1);
  }
}

TEST(Simt, SharedMemoryAndBarriersReverseABlock) {
  for (const Machine& machine : kMachines) {
    std::vector<int> x(96 * 3), y(x.size());
    std::iota(x.begin(), x.end(), 0);
    const auto kernel = [&] {
      TEMPER_SHARED(int, tile, 96);
      tile[threadIdx.x] = x[blockIdx.x * 96 + threadIdx.x];
      __syncthreads();
      y[blockIdx.x * 96 + threadIdx.x] = tile[95 - threadIdx.x];
    };
    EXPECT_EQ(Launch(machine, {3}, {96}, kernel), "");
    for (int i = 0; i < 288; ++i) EXPECT_EQ(y[static_cast<size_t>(i)], i / 96 * 96 + 95 - i % 96);
  }
}

TEST(Simt, ShufflesAndReductionsMeetAllLanes) {
  for (const Machine& machine : kMachines) {
    std::vector<double> sums(256);
    std::vector<float> neighbours(256);
    const auto kernel = [&] {
      TEMPER_SHARED(double, scratch, kMostWarps);
      neighbours[threadIdx.x] = ShuffleXor(static_cast<float>(threadIdx.x), 5);
      sums[threadIdx.x] = ReduceBlock<gpu::Sum, double>(threadIdx.x, scratch) +
                          ReduceBlock<gpu::Max, double>(threadIdx.x == 77 ? 1e6 : 0, scratch);
    };
    EXPECT_EQ(Launch(machine, {1}, {kBlockThreads}, kernel), "");
    for (unsigned i = 0; i < 256; ++i) {
      EXPECT_EQ(sums[i], 255 * 128 + 1e6);
      EXPECT_EQ(neighbours[i], static_cast<float>(i ^ 5u));
    }
  }
}

// The fault of a launch of two warps of `kernel`.
template <class F>
std::string FaultOf(const F& kernel, const Machine& machine = {.warp_size = 32}) {
  return Launch(machine, {1}, {64}, kernel);
}

void ExpectFault(const std::string& fault, const std::string& part) {
  EXPECT_NE(fault.find(part), std::string::npos) << "'" << fault << "' does not say '" << part << "'";
}

TEST(Simt, ABarrierThatSomeThreadsMissIsAFault) {
  ExpectFault(FaultOf([] {
                if (threadIdx.x > 0) __syncthreads();
              }),
              "has ended");
  ExpectFault(FaultOf([] {
                if (threadIdx.x < 32) {
                  __syncthreads();
                } else {
                  __syncthreads();
                }
              }),
              "waits at the __syncthreads of line");
}

TEST(Simt, AShuffleThatSomeLanesMissIsAFault) {
  const auto kernel = [] {
    if (threadIdx.x % 2 == 0) ShuffleXor(1.0f, 2);
  };
  ExpectFault(FaultOf(kernel), "waits in the shuffle of line");
  // Half a warp of 64 is no warp.
  EXPECT_EQ(Launch({32, 0}, {1}, {32}, [] { ShuffleXor(1.0f, 1); }), "");
  ExpectFault(Launch({64, 0}, {1}, {32}, [] { ShuffleXor(1.0f, 1); }), "the warp is not full");
  ExpectFault(FaultOf([] { ShuffleXor(1.0f, 32); }), "shuffle over 32 lanes");
  EXPECT_EQ(FaultOf([] { ShuffleXor(1.0f, 32); }, {64, 0}), "");
}

TEST(Simt, SharedMemoryIsCheckedAtEveryTouch) {
  ExpectFault(FaultOf([] {
                TEMPER_SHARED(float, tile, 63);
                tile[threadIdx.x] = 1;
              }),
              "thread 63: touches element 63");
  ExpectFault(FaultOf([] {
                TEMPER_SHARED(float, tile, 64);
                if (threadIdx.x > 0) tile[threadIdx.x] = 1;
                __syncthreads();
                (void)static_cast<float>(tile[0]);
              }),
              "never written");
}

TEST(Simt, RacesBetweenBarriersAreFaults) {
  for (const Machine& machine : kMachines) {
    ExpectFault(FaultOf(
                    [] {
                      TEMPER_SHARED(float, tile, 64);
                      tile[threadIdx.x] = 1;
                      __syncthreads();
                      tile[threadIdx.x] = 2;
                      (void)static_cast<float>(tile[63 - threadIdx.x]);
                    },
                    machine),
                "since the last __syncthreads");
    ExpectFault(FaultOf(
                    [] {
                      TEMPER_SHARED(float, tile, 1);
                      tile[0] = 1;
                    },
                    machine),
                "since the last __syncthreads");
    // Written after others have read it.
    ExpectFault(FaultOf(
                    [] {
                      TEMPER_SHARED(float, tile, 64);
                      tile[threadIdx.x] = 1;
                      __syncthreads();
                      const float next = tile[(threadIdx.x + 1) % 64];
                      tile[threadIdx.x] = next;
                    },
                    machine),
                "since the last __syncthreads");
  }
}

TEST(Simt, TheOrderOfThreadsChangesWithItsSeedAndIsTheSameForTheSame) {
  const auto order = [](uint64_t seed) {
    std::vector<unsigned> seen;
    EXPECT_EQ(Launch({32, seed}, {2}, {64}, [&] { seen.push_back(blockIdx.x * 64 + threadIdx.x); }), "");
    return seen;
  };
  std::vector<unsigned> ascending(128);
  std::iota(ascending.begin(), ascending.end(), 0u);
  EXPECT_EQ(order(0), ascending);
  EXPECT_NE(order(1), ascending);
  EXPECT_NE(order(1), order(2));
  EXPECT_EQ(order(1), order(1));
}

TEST(Simt, WhatNoGpuLaunchesIsAFault) {
  EXPECT_NE(Launch({}, {1}, {1025}, [] {}), "");
  EXPECT_NE(Launch({}, {0}, {32}, [] {}), "");
  EXPECT_NE(Launch({}, {1, 65536}, {32}, [] {}), "");
}

}  // namespace
}  // namespace temper::simt::simt_test
