// IoTeam: threads that carry out transfers, cut into chunks, several of them in flight. A disk reaches its full rate
// only with several requests in flight; and while one thread copies what it has read out of its buffer, others read. If
// several threads call, the chunks of the next transfer begin when the last of the previous one have begun: nothing
// drains between two.
//
// Memory: the buffers, allocated and touched when the team is made. Run allocates nothing when it succeeds. Thread
// rule: any threads may call Run at once; each does a part of the work itself.
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

  // `width`: most chunks in flight, with a buffer each; as many threads, the first caller included. REQUIRES: width >=
  // 1; `buffer` (bytes of each) is a multiple of BlockFile::kBlock, to which it is aligned.
  IoTeam(int width, Bytes buffer);
  // REQUIRES: no thread is in Run.
  ~IoTeam();
  IoTeam(const IoTeam&) = delete;
  IoTeam& operator=(const IoTeam&) = delete;

  // Does chunks 0 .. `chunks` - 1, each once, in any order and at the same time;
  // returns when none is being done. Returns the first error; after it no further
  // chunk of this transfer begins. Transfers begin in the order of the calls.
  Status Run(int64_t chunks, Work work);

 private:
  // State of one call of Run, which owns it.
  struct Transfer {
    const Work* work;
    int64_t next, chunks;  // next: to be begun
    int64_t doing = 0;     // chunks
    Status error;
    Transfer* behind = nullptr;  // the next in the order of calls
    bool complete() const { return next == chunks && doing == 0; }
  };

  void Serve();
  // Does the next chunk of the first transfer that has one left to begin. REQUIRES: CanDo(). `lock` is held, and
  // released while the chunk is done.
  void DoNext(std::unique_lock<std::mutex>& lock);
  bool CanDo() const { return first_ != nullptr && !free_.empty(); }

  struct Free {
    void operator()(std::byte* p) const;
  };
  const Bytes buffer_;
  const std::unique_ptr<std::byte, Free> buffers_;

  std::mutex mutex_;
  std::condition_variable begun_, ended_;  // threads of the team wait for the first, callers for the second
  // Guarded by mutex_.
  std::vector<std::byte*> free_;  // buffers
  Transfer* first_ = nullptr;     // transfers with chunks left to begin, in the order of their calls
  bool stopped_ = false;

  std::vector<std::thread> threads_;  // last: they use the members above
};

}  // namespace temper
