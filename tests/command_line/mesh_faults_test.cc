// If a rank dies, hangs or was started differently, the whole run ends soon, with one message that names the rank and
// the reason, and no checkpoint is lost.
#include <elf.h>
#include <fcntl.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/user.h>

#include <chrono>
#include <functional>
#include <random>
#include <thread>
#include <utility>

#include "comm/mpi/mpi_communicator.h"
#include "temper_program.h"

namespace temper::program::mesh_faults_test {
namespace {

using Clock = std::chrono::steady_clock;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

int FromEnvironment(const char* name, int otherwise) {
  const char* const text = std::getenv(name);
  return text == nullptr ? otherwise : std::atoi(text);
}

// The entry point of process `pid`: code that no thread executes again.
uint64_t EntryOf(pid_t pid) {
  std::ifstream in(fmt::format("/proc/{}/auxv", pid), std::ios::binary);
  Elf64_auxv_t entry;
  while (in.read(reinterpret_cast<char*>(&entry), sizeof entry)) {
    if (entry.a_type == AT_ENTRY) return entry.a_un.a_val;
  }
  return 0;
}

// Puts the main thread of `pid` to sleep forever while it computes, like a hanging kernel; all other threads continue.
// False if processes may not be traced.
bool HangMainThread(pid_t pid) {
  // again: mov eax, SYS_pause; syscall; jmp again
  constexpr uint64_t kPause[] = {0xEB'05'0F'00'00'00'22'B8, 0xF7};
  const uint64_t entry = EntryOf(pid);
  while (entry != 0 && ptrace(PTRACE_SEIZE, pid, 0, 0) == 0) {
    int status = 0;
    user_regs_struct registers = {};
    const bool stopped = ptrace(PTRACE_INTERRUPT, pid, 0, 0) == 0 && waitpid(pid, &status, __WALL) == pid &&
                         WIFSTOPPED(status) && ptrace(PTRACE_GETREGS, pid, 0, &registers) == 0;
    if (!stopped) return false;
    const bool computes = static_cast<int64_t>(registers.orig_rax) < 0;  // not interrupted in a system call
    if (computes) {
      for (size_t i = 0; i < 2; ++i) ptrace(PTRACE_POKETEXT, pid, entry + 8 * i, kPause[i]);
      registers.rip = entry;
      ptrace(PTRACE_SETREGS, pid, 0, &registers);
    }
    ptrace(PTRACE_DETACH, pid, 0, 0);
    if (computes) return true;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return false;
}

// Temper's own error lines; mpirun adds others.
std::vector<std::string> Errors(const std::string& err) {
  std::vector<std::string> errors;
  std::istringstream in(err);
  for (std::string line; std::getline(in, line);) {
    if (line.starts_with("error: ")) errors.push_back(line);
  }
  return errors;
}

class MeshFaults : public Workplace {
 protected:
  MeshFaults() {
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI's, not ours
  }

  static bool HasMpirun() { return HasMpi() && std::system("command -v mpirun >/dev/null 2>&1") == 0; }
  static Arguments Mpirun() { return {"mpirun", "--oversubscribe", "--allow-run-as-root", "--bind-to", "none"}; }
  // With and without mpirun: a run of three ranks into folder `out`.
  static Arguments ThreeRanks(bool mpi, const std::string& out, const Arguments& more = {}) {
    Arguments run = Train({"--output_dir", out});
    run = With(run, more);
    if (!mpi) {
      run = With(run, {"--nprocs", "3"});
      return Command(run);
    }
    Arguments all = Mpirun();
    all.insert(all.end(), {"-n", "3", kProgram});
    all.insert(all.end(), run.begin(), run.end());
    return all;
  }
  Ended Run(const Arguments& command) const { return Process(command, folder()).Wait(); }

  std::vector<int64_t> Checkpoints(const std::string& out) const {
    std::vector<int64_t> steps;
    if (!Has(out)) return steps;
    for (const std::string& name : Must(PosixEnv().List(Path(out)))) {
      const std::string step = name.starts_with("checkpoint-") ? name.substr(11) : "";
      if (!step.empty() && step.find_first_not_of("0123456789") == step.npos) steps.push_back(std::stoll(step));
    }
    std::sort(steps.begin(), steps.end());
    return steps;
  }
  void ExpectNewestLoads(const std::string& out) const {
    const auto steps = Checkpoints(out);
    ASSERT_FALSE(steps.empty());
    const Ended listed = Temper({"inspect", fmt::format("{}/checkpoint-{}", out, steps.back())});
    EXPECT_EQ(listed.code, 0) << listed.err;
    EXPECT_NE(listed.out.find("have the checksums of the manifest"), std::string::npos) << listed.out;
  }
};

TEST_F(MeshFaults, ARankThatIsKilledEndsAllOthersWithOneMessage) {
  for (const bool mpi : {false, true}) {
    if (mpi && !HasMpirun()) continue;
    for (const int rank : {0, 1}) {
      SCOPED_TRACE(fmt::format("{} rank {}", mpi ? "mpirun" : "nprocs", rank));
      ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
      Process run(ThreeRanks(mpi, "out", {"--max_steps", "100000", "--save_steps", "2"}), folder());
      ASSERT_TRUE(run.ReadErrUntil("step 7/"));
      const pid_t victim = ProcessOfRank(run.pid(), rank);
      ASSERT_GT(victim, 0);
      kill(victim, SIGKILL);
      const auto begin = Clock::now();
      const Ended ended = run.Wait();
      EXPECT_LT(SecondsSince(begin), 30);
      EXPECT_EQ(ended.code, 128 + SIGKILL);
      const auto errors = Errors(ended.err);
      // mpirun may end them before they notice; then it reports the error.
      if (!mpi) {
        EXPECT_EQ(errors.size(), 1u) << ended.err;
      }
      ASSERT_LE(errors.size(), 1u) << ended.err;
      if (!errors.empty()) {
        EXPECT_NE(errors[0].find(fmt::format("(process {})", victim)), std::string::npos) << errors[0];
      }
      EXPECT_NE(ended.err.find(fmt::format("rank {} ", rank)), std::string::npos) << ended.err;
      ExpectNewestLoads("out");
    }
  }
}

// Runs both ways of starting ranks concurrently: most of the time is the timeout for a hanging rank.
class HangingRank : public MeshFaults {
 protected:
  // `hang` makes a process hang, or returns false; `seen_as`: how the message describes it.
  void EndsAllOthersWithOneMessage(const std::function<bool(pid_t)>& hang, const std::string& seen_as) {
    struct Hanging {
      bool mpi;
      std::string out;
      std::unique_ptr<Process> run;
      pid_t victim = 0;
    };
    std::vector<Hanging> all;
    for (const bool mpi : {false, true}) {
      if (mpi && !HasMpirun()) continue;
      const std::string out = mpi ? "mpi" : "local";
      auto run =
          std::make_unique<Process>(ThreeRanks(mpi, out, {"--max_steps", "100000", "--save_steps", "2"}), folder());
      ASSERT_TRUE(run->ReadErrUntil("step 7/"));
      const pid_t victim = ProcessOfRank(run->pid(), 1);
      ASSERT_GT(victim, 0);
      if (!hang(victim)) GTEST_SKIP() << "processes may not be traced here (ptrace): none can be put to sleep";
      all.push_back({mpi, out, std::move(run), victim});
    }
    const auto begin = Clock::now();
    for (Hanging& hanging : all) {
      SCOPED_TRACE(hanging.out);
      const Ended ended = hanging.run->Wait();
      EXPECT_LT(SecondsSince(begin), 30) << "15 s of patience, then those that stay are made to end";
      const auto errors = Errors(ended.err);
      ASSERT_EQ(errors.size(), 1u) << ended.err;
      // A rank that waits on the same host sees the process. Under MPI another rank's query may come first: a stopped
      // process does not answer it, nor one whose main thread stopped within MPI, with its lock.
      const bool seen =
          errors[0].find(fmt::format("(process {}) gives no sign of life", hanging.victim)) != std::string::npos &&
          errors[0].find(seen_as) != std::string::npos;
      const bool asked = hanging.mpi && errors[0].find("rank 1 ") != std::string::npos &&
                         errors[0].find("does not answer for 1") != std::string::npos;
      EXPECT_TRUE(seen || asked) << errors[0];
      ExpectNewestLoads(hanging.out);
    }
  }
};

TEST_F(HangingRank, StoppedAsAWholeEndsAllOthersWithOneMessage) {
  EndsAllOthersWithOneMessage([](pid_t victim) { return kill(victim, SIGSTOP) == 0; }, "it is stopped");
}

TEST_F(HangingRank, WithASleepingKernelAndLiveThreadsEndsAllOthersWithOneMessage) {
  EndsAllOthersWithOneMessage(HangMainThread, "it sleeps");
}

TEST_F(MeshFaults, AnErrorOfAllRanksIsReportedOnce) {
  for (const bool mpi : {false, true}) {
    if (mpi && !HasMpirun()) continue;
    const Ended missing = Run(ThreeRanks(mpi, "out", {"--model", "nowhere"}));
    EXPECT_EQ(missing.code, 1);
    EXPECT_EQ(Errors(missing.err), (std::vector<std::string>{"error: --model nowhere: there is no such folder"}));
    const Ended mesh = Run(ThreeRanks(mpi, "out", {"--mesh", "tp=3"}));
    EXPECT_EQ(mesh.code, 2);
    ASSERT_EQ(Errors(mesh.err).size(), 1u) << mesh.err;
    EXPECT_EQ(Errors(mesh.err)[0].find("error: mesh.tp: 5 heads"), 0u) << mesh.err;
    const Ended data = Run(ThreeRanks(mpi, "out", {"--data", "none.jsonl"}));
    EXPECT_NE(data.code, 0);
    ASSERT_EQ(Errors(data.err).size(), 1u) << data.err;
    EXPECT_EQ(Errors(data.err)[0].find("error: --data: cannot open none.jsonl"), 0u) << data.err;
  }
}

// Two equal ranks and a different third one, each in its own folder, as on machines that were set up separately.
TEST_F(MeshFaults, RanksThatWereStartedDifferentlyAreRefusedBeforeTheFirstStep) {
  if (!HasMpirun()) GTEST_SKIP() << "there is no mpirun";
  for (const char* name : {"here", "there"}) {
    CopyModel(std::string(name) + "/model");
    Spill(std::string(name) + "/d.jsonl", Slurp("d.jsonl"));
  }
  const auto run = [&](const Arguments& of_the_third) {
    Arguments all = Mpirun();
    const Arguments two = Train({"--model", "model", "--output_dir", Path("out")});  // shared, as required
    const auto add = [&](const Arguments& more) { all.insert(all.end(), more.begin(), more.end()); };
    add({"-n", "2", "-wdir", Path("here"), kProgram});
    add(two);
    add({":", "-n", "1", "-wdir", Path("there"), kProgram});
    add(With(two, of_the_third));
    return Run(all);
  };
  const Ended settings = run({"--learning_rate", "7e-3", "--max_steps", "3"});
  EXPECT_EQ(settings.code, 2);
  ASSERT_EQ(Errors(settings.err).size(), 1u) << settings.err;
  for (const char* part :
       {"error: rank 2: ", "settings differ from rank 0's", "learning_rate 0.007, not 0.0002", "max_steps 3, not 4"}) {
    EXPECT_NE(Errors(settings.err)[0].find(part), std::string::npos) << settings.err;
  }
  // Only the first rank reads data.
  ASSERT_TRUE(PosixEnv().RemoveFile(Path("there/d.jsonl")).ok());
  const Ended without_data = run({});
  EXPECT_EQ(without_data.code, 0) << without_data.err;

  std::string weights = Slurp("there/model/model.safetensors");
  uint64_t header = 0;
  std::memcpy(&header, weights.data(), sizeof header);
  weights[8 + header] = static_cast<char>(weights[8 + header] ^ 1);  // the first byte of the first tensor
  Spill("there/model/model.safetensors", weights);
  ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
  const Ended model = run({});
  EXPECT_EQ(model.code, 2);
  ASSERT_EQ(Errors(model.err).size(), 1u) << model.err;
  EXPECT_NE(Errors(model.err)[0].find("error: rank 2: model: the model on this rank's machine differs from rank 0's"),
            std::string::npos)
      << model.err;
  EXPECT_EQ(model.err.find("train step"), std::string::npos);
}

// Saves every step on a disk that is `mounted` as a tmpfs with these options, until a save fails.
class FullDisk : public MeshFaults {
 protected:
  static bool CanMount() { return geteuid() == 0 && std::system("unshare --mount true 2>/dev/null") == 0; }
  void ExpectOneMessageAndTheLastCheckpoint(bool mpi, const std::string& options, const std::string& cause) {
    std::string train;
    for (const std::string& a : ThreeRanks(mpi, "disk/out", {"--max_steps", "1000", "--save_steps", "1"}))
      train += "'" + a + "' ";
    ASSERT_TRUE(PosixEnv().CreateFolders(Path("disk")).ok());
    const std::string script = "mount -t tmpfs -o " + options + " tmpfs disk && " + train +
                               "; code=$?; newest=$(ls disk/out | grep '^checkpoint-[0-9]*$' | "
                               "sort -V | tail -n 1); '" +
                               kProgram + "' inspect disk/out/$newest && exit $code";
    const auto begin = Clock::now();
    const Ended ended = Run({"unshare", "--mount", "sh", "-c", script});
    EXPECT_EQ(ended.code, 1) << ended.err;
    ASSERT_EQ(Errors(ended.err).size(), 1u) << ended.err;
    const std::string error = Errors(ended.err)[0];
    EXPECT_NE(error.find("could not be saved; earlier checkpoints are untouched: "), std::string::npos) << error;
    EXPECT_NE(error.find(cause), std::string::npos) << error;
    EXPECT_NE(ended.out.find("have the checksums of the manifest"), std::string::npos) << ended.out << ended.err;
    RecordProperty("seconds", static_cast<int>(SecondsSince(begin)));
  }
};

// A disk with room for a few checkpoints.
TEST_F(FullDisk, IsSeenBeforeASaveAndEndsAllWithOneMessage) {
  if (!CanMount()) GTEST_SKIP() << "cannot mount";
  for (const bool mpi : {false, true}) {
    if (mpi && !HasMpirun()) continue;
    ExpectOneMessageAndTheLastCheckpoint(mpi, "size=24m", "disk/out needs");
  }
}

// A disk that reports free space but is full: the first rank that writes when files run out gets ENOSPC.
TEST_F(FullDisk, AtAWriteEndsAllWithOneMessage) {
  if (!CanMount()) GTEST_SKIP() << "cannot mount";
  for (const bool mpi : {false, true}) {
    if (mpi && !HasMpirun()) continue;
    ExpectOneMessageAndTheLastCheckpoint(mpi, "size=512m,nr_inodes=70", "No space left on device");
  }
}

// Ranks share an unnamed file: the size of /dev/shm (64 MB in many containers) does not matter.
TEST_F(MeshFaults, RanksOfOneMachineNeedNoDevShm) {
  if (geteuid() != 0 || std::system("unshare --mount true 2>/dev/null") != 0) GTEST_SKIP() << "cannot mount";
  std::string train;
  for (const std::string& a : ThreeRanks(false, "out")) train += "'" + a + "' ";
  const Ended ended = Run({"unshare", "--mount", "sh", "-c", "mount -t tmpfs -o size=64k tmpfs /dev/shm && " + train});
  EXPECT_EQ(ended.code, 0) << ended.err;
  ExpectEnd(Run({"sh", "-c", "ulimit -f 1000 && " + train + " --overwrite"}), 1,
            {"share memory through a file", "ulimit -f unlimited"});
}

// Under mpirun, with a /dev/shm of its own: no file of ours or of Open MPI's has a name there while ranks train, nor
// after they were killed, which would leave memory behind until the machine starts anew.
TEST_F(MeshFaults, RanksUnderMpirunLeaveNothingInDevShm) {
  if (!HasMpirun()) GTEST_SKIP() << "there is no mpirun";
  if (geteuid() != 0 || std::system("unshare --mount true 2>/dev/null") != 0) GTEST_SKIP() << "cannot mount";
  std::string train;
  for (const std::string& a : ThreeRanks(true, "out", {"--max_steps", "100000"})) train += "'" + a + "' ";
  Process run({"unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /dev/shm && exec " + train}, folder());
  ASSERT_TRUE(run.ReadErrUntil("step 3/"));
  // Open, it stays when its last process has ended.
  const int shared = open(fmt::format("/proc/{}/root/dev/shm", run.pid()).c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  ASSERT_GE(shared, 0);
  const auto names = [&] { return Must(PosixEnv().List(fmt::format("/proc/self/fd/{}", shared))); };
  EXPECT_EQ(names(), std::vector<std::string>{}) << "while they train";
  std::vector<pid_t> ranks;
  for (int rank = 0; rank < 3; ++rank) {
    ranks.push_back(ProcessOfRank(run.pid(), rank));
    ASSERT_GT(ranks.back(), 0);
    std::ifstream maps(fmt::format("/proc/{}/maps", ranks.back()));
    const std::string text{std::istreambuf_iterator<char>(maps), {}};
    EXPECT_NE(text.find("/dev/shm/.temper-mpi-"), text.npos) << "they share memory there, or this tests nothing";
  }
  for (const pid_t rank : ranks) kill(rank, SIGKILL);
  EXPECT_NE(run.Wait().code, 0);
  EXPECT_EQ(names(), std::vector<std::string>{}) << "after they were killed";
  close(shared);
}

// Any rank is killed at any time: the run resumes from the newest checkpoint and ends with the bytes of a run that was
// never stopped. TEMPER_KILLS and TEMPER_KILL_SEED: number and seed of the kills.
class RandomKills : public MeshFaults {
 protected:
  static constexpr int kRanks = 3;

  void LoseNothing(bool mpi, int kills_in_ci) {
    const int kills = FromEnvironment("TEMPER_KILLS", kills_in_ci), seed = FromEnvironment("TEMPER_KILL_SEED", 7);
    const auto start = Clock::now();
    const Arguments once = ThreeRanks(mpi, "out", {"--max_steps", "24", "--save_steps", "1"});
    ASSERT_EQ(Run(once).code, 0);
    const double life = SecondsSince(start);
    ASSERT_TRUE(PosixEnv().Rename(Path("out"), Path("whole")).ok());
    Arguments on = once;
    on.push_back("--resume");

    std::mt19937 random(static_cast<uint32_t>(seed));
    int64_t newest = 0;
    int finished = 0, killed = 0;
    const auto finish = [&] {
      ExpectSame(Path("whole"), Path("out"));
      ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
      newest = 0;
      ++finished;
    };
    while (killed < kills && (kills > kills_in_ci || SecondsSince(start) < 30)) {
      SCOPED_TRACE(fmt::format("kill {} of seed {}, from step {}", killed, seed, newest));
      Process run(on, folder());
      std::this_thread::sleep_for(std::chrono::duration<double>(std::uniform_real_distribution<>(0, life)(random)));
      const int rank = std::uniform_int_distribution<>(0, kRanks)(random);  // the last: their launcher
      std::vector<EndOf> ranks;
      for (int r = 0; r < kRanks; ++r) ranks.emplace_back(ProcessOfRank(run.pid(), r));
      const pid_t victim = rank == kRanks ? run.pid() : ranks[static_cast<size_t>(rank)].pid();
      if (victim > 0) kill(victim, SIGKILL);
      const auto begin = Clock::now();
      const Ended ended = run.Wait();
      for (const EndOf& each : ranks) EXPECT_TRUE(each.Comes(30 - SecondsSince(begin))) << "a rank still runs";
      const auto saved = Checkpoints("out");
      EXPECT_GE(saved.empty() ? 0 : saved.back(), newest) << "a finished save is lost";
      newest = saved.empty() ? 0 : saved.back();
      if (ended.code == 0) {
        ASSERT_NO_FATAL_FAILURE(finish());
        continue;
      }
      ++killed;
      if (rank != kRanks) ExpectOneMessage(mpi, ended, rank);
    }
    const Ended last = Run(on);
    ASSERT_EQ(last.code, 0) << last.err;
    ASSERT_NO_FATAL_FAILURE(finish());
    RecordProperty("kills", killed);
    fmt::print("{} kills, {} runs finished in the same bytes\n", killed, finished);
    EXPECT_GT(killed, 0);
  }

 private:
  // The end of a process that is not a child of this one.
  class EndOf {
   public:
    // 0: no process.
    explicit EndOf(pid_t pid) : pid_(pid), fd_(pid > 0 ? static_cast<int>(syscall(SYS_pidfd_open, pid, 0)) : -1) {}
    EndOf(EndOf&& other) noexcept : pid_(other.pid_), fd_(std::exchange(other.fd_, -1)) {}
    ~EndOf() {
      if (fd_ >= 0) close(fd_);
    }
    pid_t pid() const { return pid_; }
    bool Comes(double seconds) const {
      pollfd ended{.fd = fd_, .events = POLLIN};
      return fd_ < 0 || poll(&ended, 1, std::max(0, static_cast<int>(seconds * 1000))) == 1;
    }

   private:
    const pid_t pid_;
    int fd_;
  };

  // The message that names the rank and what happened to it. Under mpirun it is mpirun's if that was faster than the
  // ranks; mpirun does not always name a rank that ended before it had joined the others.
  static void ExpectOneMessage(bool mpi, const Ended& ended, int rank) {
    const auto errors = Errors(ended.err);
    ASSERT_LE(errors.size(), 1u) << ended.err;
    const auto says = [&](const std::string& text) { return ended.err.find(text) != std::string::npos; };
    if (errors.size() == 1) {
      EXPECT_NE(errors[0].find(fmt::format("rank {} ", rank)), std::string::npos) << ended.err;
      return;
    }
    EXPECT_TRUE(mpi) << ended.err;
    EXPECT_TRUE((says(fmt::format("process rank {} with PID", rank)) && says("signal 9 (Killed)")) ||
                says("1 process returned\na non-zero exit code"))
        << ended.err;
  }
};

TEST_F(RandomKills, OfRanksOfOneMachineLoseNothing) {
  LoseNothing(/*mpi=*/false, /*kills_in_ci=*/8);
}

TEST_F(RandomKills, UnderMpirunLoseNothing) {
  if (!HasMpirun()) GTEST_SKIP() << "there is no mpirun";
  LoseNothing(/*mpi=*/true, /*kills_in_ci=*/4);
}

}  // namespace
}  // namespace temper::program::mesh_faults_test
