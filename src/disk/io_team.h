// IoTeam: threads that carry out one transfer at a time, cut in chunks, each with a buffer of its own. A disk gives
// what it can only when it is asked for several things at once; and while one thread copies what it has read out of its
// buffer, others read.
//
// Memory: the buffers, allocated and touched when the team is made. Run allocates nothing where it succeeds.
// Thread rule: any thread may call Run; it does a part of the work itself. Callers wait for each other.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <span>
#include <thread>
#include <vector>

#include "base/function_ref.h"
#include "base/status.h"
#include "base/units.h"

namespace temper {

class IoTeam {
 public:
  // Does chunk `chunk`, with a buffer that no other thread uses meanwhile.
  using Work = FunctionRef<Status(int64_t chunk, std::span<std::byte> buffer)>;

  // `width` threads, the caller among them. REQUIRES: width >= 1; `buffer` (of each) is a multiple of
  // BlockFile::kBlock, to which it is aligned.
  IoTeam(int width, Bytes buffer);
  ~IoTeam();
  IoTeam(const IoTeam&) = delete;
  IoTeam& operator=(const IoTeam&) = delete;

  // Does chunks 0 .. `chunks` - 1, each once, in any order and at the same time; returns when no more are being done.
  // Of errors the first that came up; then no further chunk is begun.
  Status Run(int64_t chunks, Work work);

 private:
  void Serve(int member);
  void DoChunks(int member);
  std::span<std::byte> BufferOf(int member) const;

  const Bytes buffer_;
  struct Free {
    void operator()(std::byte* p) const;
  };
  const std::unique_ptr<std::byte, Free> buffers_;

  std::mutex turn_;  // of the caller whose transfer is in progress
  std::mutex mutex_;
  std::condition_variable begun_, ended_;
  // Guarded by mutex_.
  const Work* work_ = nullptr;  // of the transfer in progress
  int64_t next_ = 0, chunks_ = 0;
  int64_t doing_ = 0;  // chunks
  Status error_;
  bool stopped_ = false;

  std::vector<std::thread> threads_;  // last: they use what is above
};

}  // namespace temper
