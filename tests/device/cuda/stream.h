// Streams, events and graphs of the GPU that tests simulate: what the opaque types of CUDA's runtime point to. Work on
// a stream is done in its order, by a thread of the stream's own, and as late as CUDA allows: when somebody waits for
// it, or long after nobody has enqueued more. So a wait that is missing shows as wrong bytes.
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

// Done in its turn. What it ends with, where that is not cudaSuccess, is the GPU's error from then on.
using Work = std::function<cudaError_t()>;

class WorkQueue {
 public:
  ~WorkQueue();
  void Enqueue(Work work);
  size_t enqueued();
  // Until that much of it is done.
  void WaitFor(size_t position);
  bool IsDone(size_t position);

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

// What is recorded instead of done.
struct Capture {
  std::vector<Work> work;
  bool invalid = false;
};

// All streams that there are.
void SynchronizeStreams();

}  // namespace temper::cuda

struct CUstream_st {
  CUstream_st();
  ~CUstream_st();
  // Does, or records.
  void Enqueue(temper::cuda::Work work);

  ApartStreamHandle handle;  // first: libraries that stand in for the vendor's know a stream as one of these
  std::shared_ptr<temper::cuda::WorkQueue> queue = std::make_shared<temper::cuda::WorkQueue>();
  std::unique_ptr<temper::cuda::Capture> capture;  // while it records
};

struct CUevent_st {
  unsigned flags = 0;
  std::shared_ptr<temper::cuda::WorkQueue> queue;  // nullptr: it marks no place yet
  size_t position = 0;
  const temper::cuda::Capture* capture = nullptr;  // it marks a place of a recording
  std::shared_ptr<std::chrono::steady_clock::time_point> time;
};

struct CUgraph_st {
  std::vector<temper::cuda::Work> work;
};
struct CUgraphExec_st {
  std::vector<temper::cuda::Work> work;
};
