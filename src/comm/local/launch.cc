#include "comm/local/launch.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>

#include "comm/local/host_memory.h"

extern char** environ;

namespace temper {
namespace {

constexpr const char* kVariable = "TEMPER_LAUNCHED_RANK";  // "rank size descriptor"
constexpr int kNotStarted = 127;                           // as shells have it
constexpr std::chrono::seconds kBetweenTermAndKill{3};

std::vector<std::string> OwnArguments() {
  std::ifstream in("/proc/self/cmdline", std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(in)), std::istreambuf_iterator<char>());
  std::vector<std::string> arguments;
  for (size_t at = 0; at < text.size(); at += arguments.back().size() + 1) arguments.emplace_back(text.c_str() + at);
  return arguments;
}

std::vector<char*> Pointers(std::vector<std::string>& strings) {
  std::vector<char*> pointers;
  for (std::string& s : strings) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  return pointers;
}

// Signals wait to be fetched while one of these lives.
class HeldSignals {
 public:
  HeldSignals() {
    sigemptyset(&held_);
    for (const int s : {SIGINT, SIGTERM, SIGHUP, SIGUSR1, SIGCHLD}) sigaddset(&held_, s);
    sigprocmask(SIG_BLOCK, &held_, &before_);
    // With children ignored, their exit status would be lost.
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &usual, &children_);
  }
  ~HeldSignals() {
    sigaction(SIGCHLD, &children_, nullptr);
    sigprocmask(SIG_SETMASK, &before_, nullptr);
  }
  HeldSignals(const HeldSignals&) = delete;
  HeldSignals& operator=(const HeldSignals&) = delete;

  const sigset_t& before() const { return before_; }
  // The next one, or 0 after a tenth of a second. `from_terminal`: typed, so that the ranks have got it, too.
  int Next(bool* from_terminal) const {
    const timespec patience{.tv_sec = 0, .tv_nsec = 100'000'000};
    siginfo_t info;
    const int signal = sigtimedwait(&held_, &info, &patience);
    *from_terminal = signal > 0 && info.si_code == SI_KERNEL;
    return signal > 0 ? signal : 0;
  }

 private:
  sigset_t held_, before_;
  struct sigaction children_;
};

std::string DeathBy(int signal) {
  return fmt::format("was killed by signal {} ({}){}", signal, strsignal(signal),
                     signal == SIGKILL ? ", as the kernel does when memory runs out: see dmesg" : "");
}

class Launcher {
 public:
  Launcher(const LaunchSpec& spec, std::shared_ptr<HostMemory> memory) : spec_(spec), memory_(std::move(memory)) {}

  Result<LaunchResult> Run() {
    memory_->control().SetLaunched();
    for (int rank = 0; rank < spec_.ranks; ++rank) {
      const Status started = Start(rank);
      if (!started.ok()) {
        Stop(started);
        SignalAll(SIGKILL);
        while (running_ > 0) Reap(/*wait=*/true);
        return started;
      }
    }
    while (running_ > 0) {
      bool from_terminal = false;
      const int signal = signals_.Next(&from_terminal);
      Reap(/*wait=*/false);
      if (signal != 0 && signal != SIGCHLD && !from_terminal) SignalAll(signal);
      EndTheSlow();
    }
    return result_;
  }

 private:
  using Clock = std::chrono::steady_clock;

  Status Start(int rank) {
    std::vector<std::string> arguments = spec_.arguments.empty() ? OwnArguments() : spec_.arguments;
    std::vector<std::string> environment;
    for (char** e = environ; *e != nullptr; ++e) environment.emplace_back(*e);
    environment.push_back(fmt::format("{}={} {} {}", kVariable, rank, spec_.ranks, memory_->file()));
    const std::vector<char*> argv = Pointers(arguments), envp = Pointers(environment);
    const pid_t launcher = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
      // Only what may be called between fork and exec.
      prctl(PR_SET_PDEATHSIG, SIGTERM);
      if (getppid() != launcher) _exit(kNotStarted);
      fcntl(memory_->file(), F_SETFD, 0);
      sigprocmask(SIG_SETMASK, &signals_.before(), nullptr);
      execve("/proc/self/exe", argv.data(), envp.data());
      _exit(kNotStarted);
    }
    if (pid < 0) {
      return IoError(
          fmt::format("cannot start rank {}: {}; raise the limit of processes (ulimit -u, pids.max) or start "
                      "fewer ranks (--nprocs)",
                      rank, std::strerror(errno)));
    }
    RankBlock& block = memory_->control().rank(rank);
    block.global_rank.store(rank);
    block.pid.store(pid);
    pids_.push_back(pid);
    ++running_;
    return OkStatus();
  }

  void Reap(bool wait) {
    for (size_t rank = 0; rank < pids_.size(); ++rank) {
      int status = 0;
      if (pids_[rank] == 0 || waitpid(pids_[rank], &status, wait ? 0 : WNOHANG) != pids_[rank]) continue;
      const pid_t pid = pids_[rank];
      pids_[rank] = 0;
      --running_;
      const bool killed = WIFSIGNALED(status);
      const int code = killed ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0) continue;
      if (result_.exit_code == 0) result_.exit_code = code;
      // One that has left has done its part of the run, and can tell the user itself what came afterwards.
      if (!killed && memory_->control().rank(static_cast<int>(rank)).left.load() != 0) continue;
      const std::string name = fmt::format("rank {} (process {})", rank, pid);
      Stop(IoError(name + " " + (killed ? DeathBy(WTERMSIG(status)) : fmt::format("ended with exit code {}", code))));
    }
  }

  void Stop(const Status& cause) {
    if (memory_->control().Stop(cause, -1)) result_.message = cause.message();
  }

  void SignalAll(int signal) {
    for (const pid_t pid : pids_) {
      if (pid != 0) kill(pid, signal);
    }
  }

  // Ranks that have not ended some time after the run was stopped: in a system call that hangs, or stopped themselves.
  void EndTheSlow() {
    if (!memory_->control().stopped()) return;
    const Clock::time_point now = Clock::now();
    if (stopped_ == Clock::time_point()) stopped_ = now;
    const auto grace = std::chrono::duration_cast<Clock::duration>(std::chrono::duration<double>(spec_.grace.v));
    if (!terminated_ && now - stopped_ > grace) {
      SignalAll(SIGTERM);
      SignalAll(SIGCONT);
      terminated_ = true;
    }
    if (now - stopped_ > grace + kBetweenTermAndKill) SignalAll(SIGKILL);
  }

  const LaunchSpec& spec_;
  const std::shared_ptr<HostMemory> memory_;
  const HeldSignals signals_;
  std::vector<pid_t> pids_;  // per rank; 0: has ended
  int running_ = 0;
  LaunchResult result_;
  Clock::time_point stopped_;
  bool terminated_ = false;
};

}  // namespace

Result<LaunchResult> Launch(const LaunchSpec& spec) {
  TEMPER_ASSIGN_OR_RETURN(std::shared_ptr<HostMemory> memory, HostMemory::CreateShared(spec.ranks));
  return Launcher(spec, std::move(memory)).Run();
}

std::optional<LaunchedRank> RankFromEnvironment() {
  const char* const text = std::getenv(kVariable);
  LaunchedRank launched;
  if (text == nullptr || std::sscanf(text, "%d %d %d", &launched.rank, &launched.size, &launched.file) != 3) {
    return std::nullopt;
  }
  unsetenv(kVariable);
  prctl(PR_SET_NAME, program_invocation_short_name);  // exec named it after the link that it followed
  fcntl(launched.file, F_SETFD, FD_CLOEXEC);
  return launched;
}

}  // namespace temper
