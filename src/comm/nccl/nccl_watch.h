// NcclWatch: a thread that looks around for a rank while that waits on its device for others, where it cannot do so
// itself. Where the run has ended, or a peer is gone, it lets what waits end, so that the rank can; and gives up on a
// rank that does not.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace temper {

class NcclWatch {
 public:
  // Whether the run goes on. Called several times a second.
  using Look = std::function<Status()>;
  // Ends what waits. False: it could not. Called on a thread of its own: it may not return.
  using Abort = std::function<bool(const Status& cause)>;
  // The rank has not come back though it was let go: ends the process. nullptr: nobody does.
  using GiveUp = std::function<void(const Status& cause)>;

  NcclWatch(Look look, Abort abort, GiveUp give_up);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // The rank needs it no more: whatever waited has come back.
  void Dismiss();

 private:
  void Run();

  const Look look_;
  const Abort abort_;
  const GiveUp give_up_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool dismissed_ = false, stuck_ = false;  // guarded by mutex_
  std::thread thread_;                      // last: it uses the rest
};

}  // namespace temper
