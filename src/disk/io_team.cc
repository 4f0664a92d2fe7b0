#include "disk/io_team.h"

#include <sys/mman.h>

#include <cstdlib>
#include <cstring>
#include <new>
#include <system_error>
#include <utility>

#include "base/block_file.h"
#include "base/thread.h"

namespace temper {
namespace {

// Huge pages where there is a whole one: scattered small pages are pieces that a disk's queue takes only so many of at
// once, so that a read becomes two.
std::byte* AllocateTouched(size_t size) {
  constexpr size_t kHugePage = size_t{2} << 20;
  const bool huge = size % kHugePage == 0;
  auto* const p = static_cast<std::byte*>(std::aligned_alloc(huge ? kHugePage : BlockFile::kBlock, size));
  if (p == nullptr) throw std::bad_alloc();
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
  for (int i = 0; i < width; ++i) free_.push_back(buffers_.get() + i * buffer.v);
  try {
    for (int member = 1; member < width; ++member) threads_.push_back(StartThread([this] { Serve(); }));
  } catch (const std::system_error&) {
    // No more threads: fewer chunks are in flight; the callers of Run do them all if need be.
  }
}

IoTeam::~IoTeam() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  begun_.notify_all();
  for (std::thread& thread : threads_) thread.join();
}

Status IoTeam::Run(int64_t chunks, Work work) {
  if (chunks == 0) return OkStatus();
  Transfer own{.work = &work, .next = 0, .chunks = chunks};
  std::unique_lock lock(mutex_);
  Transfer** end = &first_;
  while (*end != nullptr) end = &(*end)->behind;
  *end = &own;
  if (chunks > 1) begun_.notify_all();  // else no thread need wake up
  while (!own.complete()) {
    if (own.next < own.chunks && CanDo()) {
      DoNext(lock);
      // All of its own has begun: the buffer that this thread releases is for a waiting one.
      if (own.next == own.chunks && CanDo()) {
        begun_.notify_one();
        ended_.notify_all();
      }
    } else {
      ended_.wait(lock);
    }
  }
  return std::move(own.error);
}

void IoTeam::Serve() {
  std::unique_lock lock(mutex_);
  for (;;) {
    begun_.wait(lock, [this] { return stopped_ || CanDo(); });
    if (stopped_) return;
    DoNext(lock);
  }
}

void IoTeam::DoNext(std::unique_lock<std::mutex>& lock) {
  Transfer& transfer = *first_;  // earlier transfers have begun all their chunks
  const auto leave = [&] { first_ = transfer.behind; };
  const int64_t chunk = transfer.next++;
  if (transfer.next == transfer.chunks) leave();
  ++transfer.doing;
  std::byte* const buffer = free_.back();
  free_.pop_back();
  lock.unlock();
  Status done = (*transfer.work)(chunk, {buffer, static_cast<size_t>(buffer_.v)});
  lock.lock();
  free_.push_back(buffer);
  --transfer.doing;
  if (!done.ok()) {
    if (transfer.next < transfer.chunks) leave();
    transfer.next = transfer.chunks;
    if (transfer.error.ok()) transfer.error = std::move(done);
  }
  if (transfer.complete()) ended_.notify_all();
}

}  // namespace temper
