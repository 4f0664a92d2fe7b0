#include "stream.h"

#include <set>

#include "simulated_gpu.h"

namespace temper::cuda {
namespace {

// A GPU makes progress unasked: ranks may wait for work that this one has enqueued and not waited for.
constexpr auto kWhile = std::chrono::milliseconds(20);

struct AllStreams {
  std::mutex mutex;
  std::set<CUstream_st*> streams;
};
AllStreams& Streams() {
  static auto* const all = new AllStreams;
  return *all;
}

void EnqueueForLibrary(void* stream, const char* (*work)(void*), void (*drop)(void*), void* argument) {
  const std::shared_ptr<void> owned(argument, drop);
  static_cast<CUstream_st*>(stream)->Enqueue([work, owned] {
    if (SimulatedGpu::The().dry()) return cudaSuccess;
    const char* const error = work(owned.get());
    if (error == nullptr) return cudaSuccess;
    Say(error);
    return cudaErrorLaunchFailure;
  });
}
void* MemoryForLibrary(void*, const void* address) {
  return SimulatedGpu::The().memory.Find(reinterpret_cast<uint64_t>(address), 0);
}

void PassTimeForLibrary(void* stream, double seconds) {
  static_cast<CUstream_st*>(stream)->queue->passed +=
      std::chrono::duration_cast<std::chrono::steady_clock::duration>(std::chrono::duration<double>(seconds));
}

}  // namespace

WorkQueue::~WorkQueue() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  if (worker_.joinable()) worker_.join();
}

void WorkQueue::Enqueue(Work work) {
  const std::lock_guard lock(mutex_);
  if (!worker_.joinable()) worker_ = std::thread([this] { Run(); });
  queue_.push_back(std::move(work));
  ++enqueued_;
  last_ = std::chrono::steady_clock::now();
  changed_.notify_all();
}

size_t WorkQueue::enqueued() {
  const std::lock_guard lock(mutex_);
  return enqueued_;
}

void WorkQueue::WaitFor(size_t position) {
  std::unique_lock lock(mutex_);
  wanted_ = std::max(wanted_, position);
  changed_.notify_all();
  changed_.wait(lock, [&] { return done_ >= position; });
}

bool WorkQueue::IsDone(size_t position) {
  const std::lock_guard lock(mutex_);
  return done_ >= position;
}

void WorkQueue::Run() {
  std::unique_lock lock(mutex_);
  for (;;) {
    const auto due = [&] {
      return done_ < enqueued_ && (done_ < wanted_ || std::chrono::steady_clock::now() - last_ >= kWhile);
    };
    while (!due() && !stopping_) {
      if (done_ < enqueued_) {
        changed_.wait_for(lock, kWhile);
      } else {
        changed_.wait(lock);
      }
    }
    if (done_ == enqueued_) return;
    Work work = std::move(queue_.front());
    queue_.pop_front();
    lock.unlock();
    SimulatedGpu& gpu = SimulatedGpu::The();
    if (gpu.failed() == cudaSuccess) {
      const cudaError_t error = work();
      if (error != cudaSuccess) gpu.Fail(error, cudaGetErrorString(error));
    }
    work = nullptr;
    lock.lock();
    ++done_;
    changed_.notify_all();
  }
}

void SynchronizeStreams() {
  std::vector<std::shared_ptr<WorkQueue>> queues;
  {
    const std::lock_guard lock(Streams().mutex);
    for (CUstream_st* stream : Streams().streams) queues.push_back(stream->queue);
  }
  for (const auto& queue : queues) queue->WaitFor(queue->enqueued());
}

}  // namespace temper::cuda

CUstream_st::CUstream_st()
    : handle{this, temper::cuda::EnqueueForLibrary, temper::cuda::MemoryForLibrary, temper::cuda::PassTimeForLibrary} {
  const std::lock_guard lock(temper::cuda::Streams().mutex);
  temper::cuda::Streams().streams.insert(this);
}

CUstream_st::~CUstream_st() {
  const std::lock_guard lock(temper::cuda::Streams().mutex);
  temper::cuda::Streams().streams.erase(this);
}

void CUstream_st::Enqueue(temper::cuda::Work work) {
  if (capture != nullptr) {
    capture->work.push_back(std::move(work));
  } else {
    queue->Enqueue(std::move(work));
  }
}
