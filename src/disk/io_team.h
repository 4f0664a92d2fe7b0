// IoTeam: threads that carry out transfers, cut in chunks, so many of them in flight. A disk gives what it can only
// when it is asked for several things at once; and while one thread copies what it has read out of its buffer, others
// read. Where several threads call, the chunks of the next transfer begin when the last of the one before have begun:
// nothing drains between two.
//
// Memory: the buffers, allocated and touched when the team is made. Run allocates nothing where it succeeds.
// Thread rule: any threads may call Run at once; each does a part of the work itself.
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

  // `width`: chunks in flight at most, with a buffer each; as many threads, the first caller among them. REQUIRES:
  // width >= 1; `buffer` (of each) is a multiple of BlockFile::kBlock, to which it is aligned.
  IoTeam(int width, Bytes buffer);
  // REQUIRES: nobody is in Run.
  ~IoTeam();
  IoTeam(const IoTeam&) = delete;
  IoTeam& operator=(const IoTeam&) = delete;

  // Does chunks 0 .. `chunks` - 1, each once, in any order and at the same time; returns when no more are being done.
  // Of errors the first that came up; then no further chunk of this transfer is begun. Transfers begin in the order of
  // the calls.
  Status Run(int64_t chunks, Work work);

 private:
  // Of one call of Run, which owns it.
  struct Transfer {
    const Work* work;
    int64_t next, chunks;  // next: to be begun
    int64_t doing = 0;     // chunks
    Status error;
    Transfer* behind = nullptr;  // the one that was called for after this
    bool complete() const { return next == chunks && doing == 0; }
  };

  void Serve();
  // Does the next chunk of the first transfer that has one to begin. REQUIRES: CanDo(). `lock` is held, and released
  // while the chunk is done.
  void DoNext(std::unique_lock<std::mutex>& lock);
  bool CanDo() const { return first_ != nullptr && !free_.empty(); }

  struct Free {
    void operator()(std::byte* p) const;
  };
  const Bytes buffer_;
  const std::unique_ptr<std::byte, Free> buffers_;

  std::mutex mutex_;
  std::condition_variable begun_, ended_;  // waited for by threads of the team, and by callers
  // Guarded by mutex_.
  std::vector<std::byte*> free_;  // buffers
  Transfer* first_ = nullptr;     // of those that have chunks to begin, in the order of their calls
  bool stopped_ = false;

  std::vector<std::thread> threads_;  // last: they use what is above
};

}  // namespace temper
