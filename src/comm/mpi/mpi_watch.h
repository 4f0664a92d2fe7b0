// MpiWatch: a thread of each rank that keeps the run together across hosts while the rank itself computes or waits. It
// tells other hosts why the run was stopped, stops it if a rank of this host has died, and answers for this rank when
// another that waits for it asks whether it still works.
//
// Thread rule: Judge by the thread that waits in the lane, the rest by any.
#pragma once

#include <mpi.h>

#include <array>
#include <atomic>
#include <climits>
#include <condition_variable>
#include <list>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "comm/local/control_block.h"
#include "comm/local/peer_watch.h"
#include "comm/local/rank_state.h"
#include "comm/mpi/host_layout.h"
#include "comm/mpi/mpi_link.h"

namespace temper {

class MpiWatch {
 public:
  // `comm` is of all ranks and used for nothing else. `names`: of all ranks, for messages. All must outlive the watch.
  MpiWatch(MPI_Comm comm, std::mutex& lock, const ControlBlock& control, const HostLayout& hosts,
           const std::vector<std::string>& names, const MpiLinks& links);
  // If the run was stopped, first tells the other hosts, for some seconds at most.
  ~MpiWatch();
  MpiWatch(const MpiWatch&) = delete;
  MpiWatch& operator=(const MpiWatch&) = delete;

  // Whether rank `peer`, of any host, will still send what this one has waited for in `lane`: as
  // PeerWatch::Judge.
  Status Judge(Lane lane, int peer, Seconds waited);
  // From now on this rank answers that it has left, and waits only for all others to leave.
  void SetLeft() { left_.store(true); }
  // The run was stopped on this host: wakes the watch at once.
  void Hurry();
  // After a stop: ends ranks that cannot end themselves. Those of this host that are stopped, or that have neither left
  // nor worked within two seconds, are killed. `reports`: this rank has reported why; if a rank did not answer it, and
  // srun started the run, all processes of the job step are killed, this one too: the other may be alone on its host.
  void EndTheSilent(bool reports);
  // After a stop: whether this rank reports it. Hosts may have found out at the same time, so a rank that would report
  // waits a moment for messages of others.
  bool Reports();

 private:
  using Clock = std::chrono::steady_clock;
  // A rank's answer for itself.
  struct Pulse {
    OwnActivity own;
    RankWaits waits;  // on global ranks
    int32_t left = 0;
  };
  // One lane's wait in progress.
  struct Wait {
    std::atomic<int> ask{-1};  // the rank to ask for a sign of life
    // Protected by mutex_.
    int answered = -1;  // the rank whose answer this is
    Pulse pulse;
    Clock::time_point answer_time;
    // Of the waiting thread.
    int peer = -1;
    Pulse mark;
    bool marked = false;
    Clock::time_point first_look, last_look, mark_time, left_since;
  };
  struct Letter {
    enum Kind : int32_t { kAsk, kAnswer, kStopped } kind;
    int32_t code = 0, reporter = -1;
    Pulse pulse;
    char text[1024] = {};
  };
  struct Outgoing {
    Letter letter;
    MPI_Request request;
  };

  void Run();
  void Look();
  void ReadLetters();
  void WatchHost();
  void TellOthers();
  void Post(int peer, const Letter& letter);
  // Whether all letters have been sent off.
  bool Flushed();
  Pulse OwnPulse() const;
  double AskingTime() const;  // seconds between two questions
  double IdleTime() const;    // seconds without an answer
  // "a rank" for a number that the memory of ranks gives wrongly.
  std::string NameOf(int rank) const {
    const auto i = static_cast<size_t>(rank);
    return i < names_.size() ? names_[i] : "a rank";
  }

  const MPI_Comm comm_;
  std::mutex& mpi_lock_;
  const ControlBlock control_;
  const HostLayout& hosts_;
  const std::vector<std::string>& names_;
  const MpiLinks& links_;
  const int rank_;
  PeerWatch host_watch_;
  std::list<Outgoing> outgoing_;
  std::atomic<bool> left_{false};
  std::atomic<bool> silence_{false};              // a rank did not answer this one
  std::atomic<int> reporter_elsewhere_{INT_MAX};  // the lowest rank of another host that reports why the run ended

  // Protected by mutex_.
  std::mutex mutex_;
  std::condition_variable wake_;
  bool quit_ = false, hurry_ = false;

  // Of the watch's thread.
  Clock::time_point next_ask_;

  std::array<Wait, kNumLanes> waits_;

  std::thread thread_;
};

}  // namespace temper
