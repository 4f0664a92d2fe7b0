#include "disk/io_team.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <utility>

#include "base/block_file.h"

namespace temper {
namespace {

// Huge pages where there is a whole one: scattered small pages are pieces that a disk's queue takes only so many of at
// once, so that a read becomes two.
std::byte* AllocateTouched(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = size % kHugePage == 0;
  auto* const p = static_cast<std::byte*>(std::aligned_alloc(huge ? kHugePage : BlockFile::kBlock, size));
  TEMPER_CHECK(p != nullptr) << "no memory for " << size << " bytes of buffers between disk and memory";
  if (huge) (void)madvise(p, size, MADV_HUGEPAGE);
  std::memset(p, 0, size);
  return p;
}

}  // namespace

void IoTeam::Free::operator()(std::byte* p) const {
  std::free(p);
}

IoTeam::IoTeam(int width, Bytes buffer)
    : buffer_(buffer), buffers_(AllocateTouched(static_cast<size_t>(buffer.v) * static_cast<size_t>(width))) {
  for (int member = 1; member < width; ++member) threads_.emplace_back([this, member] { Serve(member); });
}

IoTeam::~IoTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

std::span<std::byte> IoTeam::BufferOf(int member) const {
  return {buffers_.get() + member * buffer_.v, static_cast<size_t>(buffer_.v)};
}

Status IoTeam::Run(int64_t chunks, Work work) {
  const std::lock_guard turn(turn_);
  if (chunks == 1) return work(0, BufferOf(0));  // the buffer is the caller's; nobody need wake up
  {
    const std::lock_guard lock(mutex_);
    work_ = &work;
    next_ = 0;
    chunks_ = chunks;
  }
  begun_.notify_all();
  DoChunks(0);
  std::unique_lock lock(mutex_);
  ended_.wait(lock, [this] { return doing_ == 0; });
  work_ = nullptr;
  return std::exchange(error_, OkStatus());
}

void IoTeam::Serve(int member) {
  for (;;) {
    {
      std::unique_lock lock(mutex_);
      begun_.wait(lock, [this] { return stopped_ || next_ < chunks_; });
      if (stopped_) return;
    }
    DoChunks(member);
  }
}

void IoTeam::DoChunks(int member) {
  std::unique_lock lock(mutex_);
  while (next_ < chunks_) {
    const Work work = *work_;
    const int64_t chunk = next_++;
    ++doing_;
    lock.unlock();
    Status done = work(chunk, BufferOf(member));
    lock.lock();
    --doing_;
    if (!done.ok()) {
      next_ = chunks_;
      if (error_.ok()) error_ = std::move(done);
    }
  }
  if (doing_ == 0) ended_.notify_one();
}

}  // namespace temper
