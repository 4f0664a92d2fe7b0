#include "base/stop_signal.h"

#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <initializer_list>

#include "base/stderr_log.h"

namespace temper {
namespace {

constexpr unsigned kSecondsToFail = 3;

// Written by a signal handler on any thread.
std::atomic<int> stop_signal = 0;
std::atomic<bool> told_at_once = true;
static_assert(std::atomic<int>::is_always_lock_free, "a signal handler may not wait for a lock");

std::atomic<int> code_before_steps = 0;
std::atomic<bool> waits_to_fail = false;
StderrLog* process_log = nullptr;  // set before there is a handler: ProcessLog's first call may allocate

void Say(std::string_view line) {
  process_log->LineInSignalHandler(line);
}

extern "C" void HandleStop(int signal) {
  int none = 0;
  if (stop_signal.compare_exchange_strong(none, signal)) {
    if (told_at_once) {
      Say("stopping: finishing and saving the current step; a second signal ends the run unsaved");
    }
  } else if (signal != SIGHUP) {
    Say("stopped at once: progress since the last checkpoint is lost");
    _exit(128 + signal);
  }
}

extern "C" void ExitBeforeSteps(int) {
  Say("stopped before the first step, with nothing to save: run the same command again");
  _exit(stop_signal == SIGINT ? 128 + SIGINT : code_before_steps.load());
}

extern "C" void HandleStopBeforeSteps(int signal) {
  int none = 0;
  const bool first = stop_signal.compare_exchange_strong(none, signal);
  if (!waits_to_fail || (!first && signal == SIGINT)) ExitBeforeSteps(signal);
  if (first) alarm(kSecondsToFail);
}

void Handle(std::initializer_list<int> signals, void (*handler)(int)) {
  process_log = &ProcessLog();
  struct sigaction action = {};
  action.sa_handler = handler;
  action.sa_flags = SA_RESTART;  // so that no read, write or sync of a save fails
  for (const int signal : signals) {
    struct sigaction before = {};
    sigaction(signal, nullptr, &before);
    if (signal == SIGHUP && before.sa_handler == SIG_IGN) continue;  // nohup: the run should continue
    sigaction(signal, &action, nullptr);
  }
}

}  // namespace

void ExitOnStopSignals(int code, bool waits) {
  code_before_steps = code;
  waits_to_fail = waits;
  Handle({SIGALRM}, ExitBeforeSteps);
  Handle({SIGINT, SIGTERM, SIGUSR1, SIGHUP}, HandleStopBeforeSteps);
}

void InstallStopHandler(bool tell_at_once) {
  told_at_once = tell_at_once;
  Handle({SIGINT, SIGTERM, SIGUSR1, SIGHUP}, HandleStop);
  alarm(0);
}

int StopSignal() {
  return stop_signal;
}

void IgnoreStopSignals() {
  for (const int stop : {SIGINT, SIGTERM, SIGUSR1, SIGHUP}) signal(stop, SIG_IGN);
}

}  // namespace temper
