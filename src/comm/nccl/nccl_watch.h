// NcclWatch: a thread that checks on other ranks while this rank waits on its
// device and cannot check itself. If the run has ended, or a peer is gone, it ends
// the wait, so that the rank can end; and it gives up on a rank that does not.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <thread>

#include "base/status.h"

namespace temper {

class NcclWatch {
 public:
  // Whether the run continues. Called several times a second.
  using Look = std::function<Status()>;
  // Ends all waits. False: it could not. Called on a thread of its own: it may not return.
  using Abort = std::function<bool(const Status& cause)>;
  // The rank has not come back after its waits were ended: ends the process. nullptr: nothing does.
  using GiveUp = std::function<void(const Status& cause)>;

  NcclWatch(Look look, Abort abort, GiveUp give_up);
  ~NcclWatch();
  NcclWatch(const NcclWatch&) = delete;
  NcclWatch& operator=(const NcclWatch&) = delete;

  // The rank no longer needs it: all waits have returned.
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
