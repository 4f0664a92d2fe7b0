#include "comm/mpi/mpi_link.h"

#include <fmt/core.h>
#include <immintrin.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>
#include <thread>

namespace temper {
namespace {

constexpr std::chrono::milliseconds kLook{100};
// A message is polled for without a pause at first, then between turns of others, at last now and then: MPI moves data
// only while it is called.
constexpr std::chrono::microseconds kBusy{10}, kYielding{1000}, kNap{50};

}  // namespace

Status FromMpi(int code, const char* what) {
  if (code == MPI_SUCCESS) return OkStatus();
  char text[MPI_MAX_ERROR_STRING];
  int length = 0;
  if (MPI_Error_string(code, text, &length) != MPI_SUCCESS) length = 0;
  return IoError(fmt::format("MPI: {} failed: {}", what, std::string_view(text, static_cast<size_t>(length))));
}

MpiLink::MpiLink(MPI_Comm comm, std::mutex& lock, const ControlBlock& control, Sleeper& sleeper, int rank, int size,
                 bool crowded)
    : comm_(comm), lock_(lock), control_(control), sleeper_(sleeper), rank_(rank), size_(size), crowded_(crowded) {}

void MpiLink::Show(int peer) {
  waiting_for_.store(peer + 1);
  if (peer >= 0) sleeper_.tid.store(static_cast<int32_t>(syscall(SYS_gettid)));
  sleeper_.waiting_for.store(peer >= 0 ? kElsewhere : 0);
}

Status MpiLink::Stop(const Status& cause) const {
  control_.Stop(cause, rank_);
  return control_.Cause();
}

Status MpiLink::Post(int code, Messages* messages, MPI_Request request, int peer) {
  if (code != MPI_SUCCESS) {
    return Stop(FromMpi(code, "a message").WithContext(fmt::format("rank {}, to or from rank {}", rank_, peer)));
  }
  messages->requests.push_back(request);
  messages->peers.push_back(peer);
  return OkStatus();
}

Status MpiLink::Send(const void* data, size_t bytes, int peer, Messages* messages) {
  TEMPER_CHECK(bytes <= INT_MAX) << bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  const std::lock_guard held(lock_);
  const int code =
      MPI_Isend(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(messages->matter), comm_, &request);
  return Post(code, messages, request, peer);
}

Status MpiLink::Receive(void* data, size_t bytes, int peer, Messages* messages) {
  TEMPER_CHECK(bytes <= INT_MAX) << bytes;
  MPI_Request request = MPI_REQUEST_NULL;
  const std::lock_guard held(lock_);
  const int code =
      MPI_Irecv(data, static_cast<int>(bytes), MPI_BYTE, peer, static_cast<int>(messages->matter), comm_, &request);
  return Post(code, messages, request, peer);
}

Status MpiLink::Wait(Messages* messages) {
  using Clock = std::chrono::steady_clock;
  const auto n = static_cast<int>(messages->requests.size());
  if (indices_.size() < messages->requests.size()) indices_.resize(messages->requests.size());
  const Clock::time_point start = Clock::now();
  Clock::time_point next_look = start + kLook;
  Status status;
  while (n > 0) {
    int completed = 0;
    {
      const std::lock_guard held(lock_);
      const int code = MPI_Testsome(n, messages->requests.data(), &completed, indices_.data(), MPI_STATUSES_IGNORE);
      if (code != MPI_SUCCESS) status = Stop(FromMpi(code, "a message").WithContext(fmt::format("rank {}", rank_)));
    }
    if (!status.ok() || completed == MPI_UNDEFINED) break;
    if (control_.stopped()) {
      status = control_.Cause();
      break;
    }
    if (completed > 0) continue;
    const Clock::time_point now = Clock::now();
    if (now >= next_look) {
      next_look = now + kLook;
      size_t pending = 0;
      while (pending + 1 < messages->requests.size() && messages->requests[pending] == MPI_REQUEST_NULL) ++pending;
      Show(messages->peers[pending]);
      if (judge_) status = judge_(messages->peers[pending], {std::chrono::duration<double>(now - start).count()});
      if (!status.ok()) {
        status = Stop(status);
        break;
      }
    }
    if (now - start > kYielding) {
      std::this_thread::sleep_for(kNap);
    } else if (crowded_ || now - start > kBusy) {
      sched_yield();
    } else {
      _mm_pause();
    }
  }
  Show(-1);
  messages->Clear();
  return status;
}

}  // namespace temper
