#include "comm/mpi/mpi_watch.h"

#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>

namespace temper {
namespace {

constexpr int kTag = 1;
constexpr std::chrono::milliseconds kBetweenLooks{100}, kLettersTake{400};
constexpr std::chrono::seconds kFarewell{3}, kLongSleep{2}, kMessagesTake{1};
double SecondsBetween(std::chrono::steady_clock::time_point a, std::chrono::steady_clock::time_point b) {
  return std::chrono::duration<double>(b - a).count();
}

}  // namespace

MpiWatch::MpiWatch(MPI_Comm comm, std::mutex& lock, const ControlBlock& control, const HostLayout& hosts,
                   const std::vector<std::string>& names, const Links& links, const Patience& patience)
    : comm_(comm),
      mpi_lock_(lock),
      control_(control),
      hosts_(hosts),
      names_(names),
      links_(links),
      link_(links.collectives),
      patience_(patience),
      host_watch_(control, hosts.place(link_.rank()), Lane::kCollectives, /*processes=*/true, patience),
      thread_([this] { Run(); }) {}

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
  if (control_.reporter() != link_.rank()) return false;
  Hurry();
  std::this_thread::sleep_for(kLettersTake);
  return reporter_elsewhere_.load() > link_.rank();
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
  const int ask = link_.waiting_for().load() != 0 ? ask_.load() : -1;
  const Clock::time_point now = Clock::now();
  if (ask >= 0 && now >= next_ask_ && Flushed()) {
    next_ask_ = now + std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(AskingTime()));
    Post(ask, {.kind = Letter::kAsk});
  }
  (void)Flushed();
}

void MpiWatch::ReadLetters() {
  while (true) {
    Letter letter;
    MPI_Status from;
    {
      const std::lock_guard held(mpi_lock_);
      int there = 0;
      if (MPI_Iprobe(MPI_ANY_SOURCE, kTag, comm_, &there, &from) != MPI_SUCCESS || there == 0) return;
      // It is there, so this does not block.
      if (MPI_Recv(&letter, sizeof letter, MPI_BYTE, from.MPI_SOURCE, kTag, comm_, &from) != MPI_SUCCESS) return;
    }
    switch (letter.kind) {
      case Letter::kAsk:
        Post(from.MPI_SOURCE, {.kind = Letter::kAnswer, .pulse = OwnPulse()});
        break;
      case Letter::kAnswer: {
        const std::lock_guard held(mutex_);
        answered_ = from.MPI_SOURCE;
        pulse_ = letter.pulse;
        answer_time_ = Clock::now();
        break;
      }
      case Letter::kStopped:
        if (letter.reporter < reporter_elsewhere_.load()) reporter_elsewhere_.store(letter.reporter);
        letter.text[sizeof letter.text - 1] = 0;
        if (control_.Stop(Status(static_cast<StatusCode>(letter.code), letter.text), letter.reporter)) {
          control_.ClaimForwarding();  // who stopped the run tells all hosts himself
        }
        break;
    }
  }
}

// Nobody may be waiting for a rank that dies, and only those of its host can see it.
void MpiWatch::WatchHost() {
  if (control_.stopped()) return;
  for (int i = 0; i < control_.ranks(); ++i) {
    if (i == hosts_.place(link_.rank()) || control_.rank(i).left.load() != 0 || !host_watch_.Died(i)) continue;
    if (control_.rank(i).left.load() != 0) continue;  // it left between the two questions
    const RankBlock& dead = control_.rank(i);
    control_.Stop(IoError(fmt::format("{} (process {}) has died", NameOf(dead.global_rank.load()), dead.pid.load())),
                  link_.rank());
  }
}

void MpiWatch::TellOthers() {
  if (!control_.ClaimForwarding()) return;
  const Status cause = control_.Cause();
  Letter letter{.kind = Letter::kStopped,
                .code = static_cast<int32_t>(cause.code()),
                .reporter = static_cast<int32_t>(control_.reporter())};
  std::strncpy(letter.text, cause.message().c_str(), sizeof letter.text - 1);
  const int own_host = hosts_.host_of[static_cast<size_t>(link_.rank())];
  for (int r = 0; r < link_.size(); ++r) {
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
  return std::min(1.0, patience_.idle.v / 5);
}

MpiWatch::Pulse MpiWatch::OwnPulse() const {
  const RankBlock& own = control_.rank(hosts_.place(link_.rank()));
  Pulse pulse{.activity = ActivityOf(getpid()), .waiting_for = link_.waiting_for().load(), .left = left_.load()};
  const int here = own.sleepers[static_cast<size_t>(Lane::kCollectives)].waiting_for.load();
  if (here != 0) pulse.waiting_for = control_.rank(here - 1).global_rank.load() + 1;
  const auto transfers = {links_.sends.waiting_for().load(), links_.receives.waiting_for().load(),
                          own.sleepers[static_cast<size_t>(Lane::kSends)].waiting_for.load(),
                          own.sleepers[static_cast<size_t>(Lane::kReceives)].waiting_for.load()};
  const bool waits = std::any_of(transfers.begin(), transfers.end(), [](int peer) { return peer != 0; });
  if (waits && pulse.waiting_for == 0) pulse.waiting_for = kAnotherStage;
  return pulse;
}

Status MpiWatch::Judge(int peer, Seconds waited) {
  const Clock::time_point now = Clock::now();
  // Where this process itself was stopped or its machine slept, the silence means nothing.
  if (peer != peer_ || waited.v < 0.2 || now - last_look_ > kLongSleep) {
    peer_ = peer;
    marked_ = false;
    first_look_ = mark_time_ = left_since_ = now;
  }
  last_look_ = now;
  if (waited.v < AskingTime()) return OkStatus();
  ask_.store(peer);
  if (waited.v > patience_.busy.v) {
    return IoError(fmt::format("{} has waited for {} for {}", NameOf(link_.rank()), NameOf(peer), ToString(waited)));
  }
  Pulse pulse;
  Clock::time_point answer_time = first_look_;
  {
    const std::lock_guard held(mutex_);
    if (answered_ == peer && answer_time_ > first_look_) {
      pulse = pulse_;
      answer_time = answer_time_;
    }
  }
  const bool answered = answer_time > first_look_;
  if (SecondsBetween(answer_time, now) > patience_.idle.v) {
    return IoError(fmt::format("{} does not answer for {}, and {} waits for it", NameOf(peer),
                               ToString(Seconds{SecondsBetween(answer_time, now)}), NameOf(link_.rank())));
  }
  if (!answered) return OkStatus();
  // The last thing it sent may be on its way.
  if (pulse.left == 0) left_since_ = now;
  if (pulse.left != 0 && !left_.load() && now - left_since_ > kMessagesTake) {
    return IoError(fmt::format("{} has left the run while {} waits for it", NameOf(peer), NameOf(link_.rank())));
  }
  // Who waits for somebody else is judged by him; two that wait for each other would do so for ever.
  const bool for_me = pulse.waiting_for == link_.rank() + 1;
  const double seconds = SecondsBetween(mark_time_, now);
  const bool busy = pulse.activity.WorkedSince(mark_.activity, seconds);
  if (!marked_ || (pulse.waiting_for != 0 && !for_me) || (busy && !for_me)) {
    mark_ = pulse;
    marked_ = true;
    mark_time_ = now;
    return OkStatus();
  }
  if (seconds < patience_.idle.v) return OkStatus();
  if (for_me) {
    return IoError(fmt::format("{} and {} wait for each other: they do not run the same program", NameOf(link_.rank()),
                               NameOf(peer)));
  }
  return IoError(fmt::format("{} gives no sign of life for {}, and {} waits for it", NameOf(peer),
                             ToString(Seconds{seconds}), NameOf(link_.rank())));
}

}  // namespace temper
