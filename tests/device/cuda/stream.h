// Streams, events and graphs of the simulated GPU: what the opaque types of CUDA's runtime point to. A thread of the
// stream's own does its work in order, and as late as CUDA allows: when another thread waits for it, or long after the
// last was enqueued. So a missing wait shows as wrong bytes.
#pragma once

#include <cuda_runtime_api.h>

#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "../../apart_stream.h"

namespace temper::cuda {

// Done in order. A result other than cudaSuccess is the GPU's error from then on.
using Work = std::function<cudaError_t()>;

class WorkQueue {
 public:
  ~WorkQueue();
  void Enqueue(Work work);
  size_t enqueued();
  // Waits until that much of it is done.
  void WaitFor(size_t position);
  bool IsDone(size_t position);
  // Simulated time that its work has added to the host's clock. Only its work touches it.
  std::chrono::steady_clock::duration passed{};

 private:
  void Run();

  std::mutex mutex_;  // guards the rest
  std::condition_variable changed_;
  std::deque<Work> queue_;
  size_t enqueued_ = 0, wanted_ = 0, done_ = 0;  // so far
  std::chrono::steady_clock::time_point last_;   // when something was enqueued
  bool stopping_ = false;
  std::thread worker_;
};

// Work that is captured instead of done.
struct Capture {
  std::vector<Work> work;
  bool invalid = false;
};

// All existing streams.
void SynchronizeStreams();

}  // namespace temper::cuda

struct CUstream_st {
  CUstream_st();
  ~CUstream_st();
  // Does it, or captures it.
  void Enqueue(temper::cuda::Work work);

  ApartStreamHandle handle;  // first: stand-ins for vendors' libraries know a stream as one of these
  std::shared_ptr<temper::cuda::WorkQueue> queue = std::make_shared<temper::cuda::WorkQueue>();
  std::unique_ptr<temper::cuda::Capture> capture;  // while it captures
};

struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<temper::cuda::WorkQueue> queue;  // nullptr: it marks no place yet
  size_t position = 0;
  const temper::cuda::Capture* capture = nullptr;  // it marks a place in a capture
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct CUgraph_st {
  std::vector<temper::cuda::Work> work;
};
struct CUgraphExec_st {
  std::vector<temper::cuda::Work> work;
};
