#include "comm/mpi/mpi_watch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstring>

#include "base/stop_signal.h"
#include "base/thread.h"
#include "comm/local/process_activity.h"
#include "comm/mpi/started_by_mpi.h"

namespace temper {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::milliseconds kBetweenLooks{100}, kLettersTake{400};
constexpr std::chrono::seconds kFarewell{2}, kLeavingTakes{2}, kLongSleep{2}, kMessagesTake{1};
// What a rank's patience shrinks to, of the usual seconds, once a signal has asked the run to stop: launchers send one
// when a rank has died, and kill all soon after.
constexpr double kPatienceWhenStopping = 4.0 / 15;
double SecondsBetween(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

MpiWatch::MpiWatch(MPI_Comm comm, std::mutex& lock, const ControlBlock& control, const HostLayout& hosts,
                   const std::vector<std::string>& names, const MpiLinks& links)
    : comm_(comm),
      mpi_lock_(lock),
      control_(control),
      hosts_(hosts),
      names_(names),
      links_(links),
      rank_(links[0].rank()),
      host_watch_(control, hosts.place(rank_), Lane::kInline, /*processes=*/true),
      thread_(StartThread([this] { Run(); })) {}

MpiWatch::~MpiWatch() {
  {
    const std::lock_guard held(mutex_);
    quit_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (!control_.stopped()) return;
  TellOthers();
  const auto until = Clock::now() + kFarewell;
  while (!Flushed() && Clock::now() < until) std::this_thread::sleep_for(std::chrono::milliseconds(1));
}

void MpiWatch::Hurry() {
  {
    const std::lock_guard held(mutex_);
    hurry_ = true;
  }
  wake_.notify_all();
}

bool MpiWatch::Reports() {
  if (control_.reporter() != rank_) return false;
  Hurry();
  std::this_thread::sleep_for(kLettersTake);
  return reporter_elsewhere_.load() > rank_;
}

void MpiWatch::EndTheSilent(bool reports) {
  // mpirun ends all ranks when one has failed. srun does so only with --kill-on-bad-exit, and then gently.
  if (reports && silence_.load() && StartedBySrun()) {
    // Open MPI would explain the abort in a page of text, after our line.
    const int nowhere = open("/dev/null", O_WRONLY | O_CLOEXEC);
    if (nowhere >= 0) dup2(nowhere, STDERR_FILENO);
    const std::lock_guard held(mpi_lock_);
    MPI_Abort(MPI_COMM_WORLD, 128 + SIGKILL);  // what the silent rank ends with
  }
  const auto begin = Clock::now(), until = begin + kLeavingTakes;
  std::vector<ProcessActivity> before;
  for (int i = 0; i < control_.ranks(); ++i) before.push_back(ActivityOf(control_.rank(i).pid.load()));
  for (int i = 0; i < control_.ranks(); ++i) {
    const RankBlock& block = control_.rank(i);
    const auto gone = [&] { return i == hosts_.place(rank_) || block.left.load() != 0 || host_watch_.Died(i); };
    while (!gone() && !ActivityOf(block.pid.load()).stopped() && Clock::now() < until) {
      std::this_thread::sleep_for(std::chrono::milliseconds(10));
    }
    if (gone() || block.pid.load() <= 0) continue;
    // A rank that computes or waits for a disk learns of the failure when it communicates next, and ends by itself.
    const ProcessActivity now = ActivityOf(block.pid.load());
    const double seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    const bool busy = now.blocked || now.WorkedSince(before[static_cast<size_t>(i)], seconds);
    if (now.stopped() || !busy) kill(block.pid.load(), SIGKILL);
  }
}

void MpiWatch::Run() {
  std::unique_lock held(mutex_);
  while (!quit_) {
    wake_.wait_for(held, kBetweenLooks, [this] { return quit_ || hurry_; });
    hurry_ = false;
    held.unlock();
    Look();
    held.lock();
  }
}

void MpiWatch::Look() {
  ReadLetters();
  WatchHost();
  if (control_.stopped()) TellOthers();
  const Clock::time_point now = Clock::now();
  if (now >= next_ask_ && Flushed()) {
    std::array<int, kNumLanes> asked;
    auto end = asked.begin();
    for (size_t lane = 0; lane < kNumLanes; ++lane) {
      const int ask = links_[lane].waiting_for().load() != 0 ? waits_[lane].ask.load() : -1;
      if (ask < 0 || std::find(asked.begin(), end, ask) != end) continue;
      *end++ = ask;
      next_ask_ = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(AskingTime()));
      Post(ask, {.kind = Letter::kAsk});
    }
  }
  (void)Flushed();
}

void MpiWatch::ReadLetters() {
  while (true) {
    Letter letter = {};
    MPI_Status from;
    {
      const std::lock_guard held(mpi_lock_);
      int there = 0;
      if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &there, &from) != MPI_SUCCESS || there == 0) return;
      // It is there, so this does not block.
      if (MPI_Recv(&letter, sizeof letter, MPI_BYTE, from.MPI_SOURCE, kTag, comm_, &from) != MPI_SUCCESS) return;
      // What is no letter comes from another program.
      int bytes = 0;
      if (MPI_Get_count(&from, MPI_BYTE, &bytes) != MPI_SUCCESS || bytes != static_cast<int>(sizeof letter)) continue;
    }
    switch (letter.kind) {
      case Letter::kAsk:
        Post(from.MPI_SOURCE, {.kind = Letter::kAnswer, .pulse = OwnPulse()});
        break;
      case Letter::kAnswer: {
        const std::lock_guard held(mutex_);
        for (Wait& wait : waits_) {
          if (wait.ask.load() != from.MPI_SOURCE) continue;
          wait.answered = from.MPI_SOURCE;
          wait.pulse = letter.pulse;
          wait.answer_time = Clock::now();
        }
        break;
      }
      case Letter::kStopped:
        // A host that has just been told may tell it back: its ranks see the stop before one of them claims forwarding.
        if (letter.reporter != rank_ && letter.reporter < reporter_elsewhere_.load()) {
          reporter_elsewhere_.store(letter.reporter);
        }
        letter.text[sizeof letter.text - 1] = 0;
        if (control_.Stop(Status(ErrorCodeOf(letter.code), letter.text), letter.reporter)) {
          control_.ClaimForwarding();  // who stopped the run tells all hosts himself
        }
        break;
    }
  }
}

// A rank may die while no rank waits for it, and only those of its host can see it.
void MpiWatch::WatchHost() {
  if (control_.stopped()) return;
  for (int i = 0; i < control_.ranks(); ++i) {
    if (i == hosts_.place(rank_) || control_.rank(i).left.load() != 0 || !host_watch_.Died(i)) continue;
    if (control_.rank(i).left.load() != 0) continue;  // it left between the two questions
    const RankBlock& dead = control_.rank(i);
    control_.Stop(IoError(fmt::format("{} (process {}) has died", NameOf(dead.global_rank.load()), dead.pid.load())),
                  rank_);
  }
}

void MpiWatch::TellOthers() {
  if (!control_.ClaimForwarding()) return;
  const Status cause = control_.Cause();
  Letter letter{.kind = Letter::kStopped,
                .code = static_cast<int32_t>(cause.code()),
                .reporter = static_cast<int32_t>(control_.reporter())};
  std::strncpy(letter.text, cause.message().c_str(), sizeof letter.text - 1);
  const int own_host = hosts_.host_of[static_cast<size_t>(rank_)];
  for (int r = 0; r < links_[0].size(); ++r) {
    if (hosts_.host_of[static_cast<size_t>(r)] != own_host) Post(r, letter);
  }
}

void MpiWatch::Post(int peer, const Letter& letter) {
  outgoing_.push_back({letter, MPI_REQUEST_NULL});
  const std::lock_guard held(mpi_lock_);
  if (MPI_Isend(&outgoing_.back().letter, sizeof letter, MPI_BYTE, peer, kTag, comm_, &outgoing_.back().request) !=
      MPI_SUCCESS) {
    outgoing_.pop_back();
  }
}

bool MpiWatch::Flushed() {
  const std::lock_guard held(mpi_lock_);
  outgoing_.remove_if([](Outgoing& out) {
    int done = 0;
    return MPI_Test(&out.request, &done, MPI_STATUS_IGNORE) != MPI_SUCCESS || done != 0;
  });
  return outgoing_.empty();
}

double MpiWatch::AskingTime() const {
  return std::min(1.0, IdleTime() / 5);
}

double MpiWatch::IdleTime() const {
  const double idle = control_.patience().idle.v;
  return StopSignal() == 0 ? idle : idle * kPatienceWhenStopping;
}

MpiWatch::Pulse MpiWatch::OwnPulse() const {
  const int place = hosts_.place(rank_);
  Pulse pulse{.own = OwnActivityOf(control_, place, /*processes=*/true),
              .waits = WaitsOf(control_, place),
              .left = left_.load()};
  for (size_t lane = 0; lane < kNumLanes; ++lane) {
    int32_t& on = pulse.waits.on[lane];
    if (on == kElsewhere) {
      on = links_[lane].waiting_for().load();
    } else if (on > 0 && on <= control_.ranks()) {
      on = control_.rank(on - 1).global_rank.load() + 1;
    }
  }
  return pulse;
}

Status MpiWatch::Judge(Lane lane, int peer, Seconds waited) {
  Wait& wait = waits_[static_cast<size_t>(lane)];
  const Clock::time_point now = Clock::now();
  // Where this process itself was stopped or its machine slept, the silence means nothing.
  if (peer != wait.peer || waited.v < 0.2 || now - wait.last_look > kLongSleep) {
    wait.peer = peer;
    wait.marked = false;
    wait.first_look = wait.mark_time = wait.left_since = now;
  }
  wait.last_look = now;
  if (waited.v < AskingTime()) return OkStatus();
  wait.ask.store(peer);
  if (waited.v > control_.patience().busy.v) {
    return IoError(fmt::format("{} has waited for {} for {}", NameOf(rank_), NameOf(peer), ToString(waited)));
  }
  Pulse pulse;
  Clock::time_point answer_time = wait.first_look;
  {
    const std::lock_guard held(mutex_);
    if (wait.answered == peer && wait.answer_time > wait.first_look) {
      pulse = wait.pulse;
      answer_time = wait.answer_time;
    }
  }
  const bool answered = answer_time > wait.first_look;
  if (SecondsBetween(answer_time, now) > IdleTime()) {
    silence_.store(true);
    return IoError(fmt::format("{} does not answer for {}, and {} waits for it", NameOf(peer),
                               ToString(Seconds{SecondsBetween(answer_time, now)}), NameOf(rank_)));
  }
  if (!answered) return OkStatus();
  // The last thing it sent may be on its way.
  if (pulse.left == 0) wait.left_since = now;
  if (pulse.left != 0 && !left_.load() && now - wait.left_since > kMessagesTake) {
    return IoError(fmt::format("{} has left the run while {} waits for it", NameOf(peer), NameOf(rank_)));
  }
  // A rank that waits is judged by the one it waits for; two in one lane that wait for each other would wait for ever.
  // The two ends of a transfer do so while its message is on its way.
  const std::optional<Lane> held = pulse.waits.HeldUpIn(lane);
  const bool for_me = IsMeetingLane(lane) && held == lane && pulse.waits.on[static_cast<size_t>(lane)] == rank_ + 1;
  const double seconds = SecondsBetween(wait.mark_time, now);
  const bool busy = pulse.own.MayHaveWorkedSince(wait.mark.own, seconds);
  if (!wait.marked || ((held || busy) && !for_me)) {
    wait.mark = pulse;
    wait.marked = true;
    wait.mark_time = now;
    return OkStatus();
  }
  if (seconds < control_.patience().idle.v) return OkStatus();
  if (for_me) {
    return IoError(
        fmt::format("{} and {} wait for each other: they do not run the same program", NameOf(rank_), NameOf(peer)));
  }
  silence_.store(true);
  return IoError(fmt::format("{} gives no sign of life for {}, and {} waits for it", NameOf(peer),
                             ToString(Seconds{seconds}), NameOf(rank_)));
}

}  // namespace temper
