// temper under srun and sbatch, two ranks on each of two nodes that share only a network and files.
#include <algorithm>
#include <chrono>
#include <thread>

#include "../command_line/temper_program.h"
#include "base/project_folder_for_test.h"

namespace temper::program::slurm_test {
namespace {

const std::string kBatchScript = std::string(kProjectFolder) + "/scripts/slurm/train.sbatch";
constexpr std::chrono::seconds kPatience{40};

class Slurm : public Workplace {
 protected:
  Slurm() {
    setenv("TEMPER", kProgram.c_str(), 1);
    setenv("SLURM_PMIX_FENCE", "ring", 1);        // as docs/howto/launch.md says
    setenv("ASAN_OPTIONS", "detect_leaks=0", 1);  // MPI's, not ours
  }

  // Four rows a step.
  static Arguments Steps(const std::string& mesh, int steps, const std::string& out) {
    const int data_ranks = mesh.empty() ? 1 : 4;
    Arguments run = Train({"--dtype", "f32", "--max_steps", std::to_string(steps), "--output_dir", out,
                           "--learning_rate", "1e-3", "--gradient_accumulation_steps", std::to_string(4 / data_ranks)});
    if (!mesh.empty()) run.insert(run.end(), {"--mesh", mesh});
    return run;
  }
  static Arguments Srun(const Arguments& temper) {
    Arguments all = {"srun", "--nodes=2", "--ntasks=4", "--mpi=pmix", "--kill-on-bad-exit=1", kProgram};
    all.insert(all.end(), temper.begin(), temper.end());
    return all;
  }
  Ended Run(const Arguments& command) const { return Process(command, folder()).Wait(); }

  template <class Condition>
  static bool Becomes(const Condition& condition) {
    const auto until = std::chrono::steady_clock::now() + kPatience;
    while (!condition()) {
      if (std::chrono::steady_clock::now() > until) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
    return true;
  }
  std::string JobState(const std::string& job) const {
    return Run({"squeue", "--noheader", "--states=all", "--format=%T", "--jobs=" + job}).out;
  }
  // The number of a job of train.sbatch; its output goes to Log().
  std::string Submit(const Arguments& temper) const {
    Arguments batch = {"sbatch",       "--parsable", "--ntasks-per-node=2", "--cpus-per-task=1",
                       "--output=log", kBatchScript};
    batch.insert(batch.end(), temper.begin() + 1, temper.end());  // the script says "train"
    const Ended submitted = Run(batch);
    EXPECT_EQ(submitted.code, 0) << submitted.err;
    return submitted.out.substr(0, submitted.out.find('\n'));
  }
  std::string Log() const { return Has("log") ? Slurp("log") : std::string(); }
  // Sends a signal to a task of a run that trains, and expects the end of all within 20 s.
  Ended EndBySignal(int signal, const Arguments& command, int task, pid_t* victim);
};

// Processes in the cluster whose command line begins with `name`.
std::vector<std::string> ProcessesOf(const std::string& name) {
  std::vector<std::string> found;
  for (const std::string& process : Must(PosixEnv().List("/proc"))) {
    std::ifstream in("/proc/" + process + "/cmdline");
    std::string command;
    if (std::isdigit(process[0]) && std::getline(in, command, '\0') && command.starts_with(name)) {
      found.push_back(process);
    }
  }
  return found;
}

// The process of a rank that Slurm has started; 0: none.
pid_t ProcessOfTask(int task) {
  for (const std::string& process : ProcessesOf(kProgram)) {
    std::ifstream environment("/proc/" + process + "/environ");
    for (std::string entry; std::getline(environment, entry, '\0');) {
      if (entry == fmt::format("SLURM_PROCID={}", task)) return static_cast<pid_t>(std::stoi(process));
    }
  }
  return 0;
}

Ended Slurm::EndBySignal(int signal, const Arguments& command, int task, pid_t* victim) {
  Process srun(command, folder());
  EXPECT_TRUE(srun.ReadErrUntil("step 10/"));
  *victim = ProcessOfTask(task);
  EXPECT_GT(*victim, 0);
  const auto start = std::chrono::steady_clock::now();
  if (*victim > 0) kill(*victim, signal);
  Ended ended = srun.Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
  EXPECT_NE(ended.code, 0);
  EXPECT_EQ(ended.err.find("stopping"), std::string::npos) << "no step is finished\n" << ended.err;
  EXPECT_TRUE(ProcessesOf(kProgram).empty());
  return ended;
}

TEST_F(Slurm, RanksOnTwoNodesHaveTheLossesOfOne) {
  ASSERT_EQ(Run(Command(Steps("", 6, "one"))).code, 0);
  const auto expected = Losses(Path("one"));
  ASSERT_EQ(expected.size(), 6u);
  for (const char* mesh : {"fsdp=4", "dp=2,fsdp=2"}) {
    SCOPED_TRACE(mesh);
    const Ended ended = Run(Srun(Steps(mesh, 6, mesh)));
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.err.find(": 2 ranks on "), std::string::npos) << ended.err;
    const auto losses = Losses(Path(mesh));
    ASSERT_EQ(losses.size(), 6u);
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 1e-5 * expected.at(step)) << step;
  }
}

// Each node has its own /dev/shm, as clusters have their own scratch disks.
TEST_F(Slurm, ANodeThatDoesNotSeeTheTokensOfTheFirstGetsACopy) {
  const Arguments own = {"--data_cache", "/dev/shm/tokens"};
  ASSERT_EQ(Run(Srun(With(Steps("fsdp=4", 2, "out"), {"--overwrite"}))).code, 0);
  const std::string adapter = Slurp("out/adapter_model.safetensors");
  for (const char* kept : {"", "data, tokenizer and settings are the same"}) {
    const Ended ended = Run(Srun(With(Steps("fsdp=4", 2, "own"), With(own, {"--overwrite"}))));
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_NE(ended.err.find(kept), std::string::npos) << ended.err;
    EXPECT_TRUE(Slurp("own/adapter_model.safetensors") == adapter);
  }
}

TEST_F(Slurm, ARankThatIsKilledEndsTheRunOfAllWithOneMessage) {
  pid_t victim = 0;
  const Ended ended = EndBySignal(SIGKILL, Srun(Steps("fsdp=4", 100000, "out")), 2, &victim);
  size_t messages = 0;
  for (size_t at = 0; (at = ended.err.find("\nerror: rank ", at)) != std::string::npos; ++at) ++messages;
  EXPECT_LE(messages, 1u) << ended.err;
  // If Slurm was faster than the ranks, it reports the error.
  const bool by_slurm = ended.err.find("task 2: Killed") != std::string::npos;
  const bool by_us = ended.err.find(fmt::format("rank 2 on n2 (process {}) has died", victim)) != std::string::npos;
  EXPECT_TRUE(by_slurm || by_us) << ended.err;
}

TEST_F(Slurm, ARankThatHangsIsNamedAndEndsTheRunOfAll) {
  pid_t victim = 0;
  const Ended ended = EndBySignal(SIGSTOP, Srun(Steps("fsdp=4", 100000, "out")), 2, &victim);
  EXPECT_NE(ended.err.find("rank 2 on n2 does not answer for 15"), std::string::npos) << ended.err;
}

// No rank of its host sees it. srun by itself would wait for it; told to, it asks the others to stop and soon kills
// them.
TEST_F(Slurm, ARankAloneOnItsHostIsNamedAndEndsTheRunOfAll) {
  for (const bool killed : {false, true}) {
    SCOPED_TRACE(killed);
    Arguments command = {"srun", "--nodes=2", "--ntasks=2", "--mpi=pmix", kProgram};
    if (killed) command.insert(command.end() - 1, "--kill-on-bad-exit=1");
    const Arguments steps = Steps("fsdp=2", 100000, killed ? "killed" : "stopped");
    command.insert(command.end(), steps.begin(), steps.end());
    if (!killed) command.insert(command.end(), {"--watch.idle_seconds", "4"});
    pid_t victim = 0;
    const Ended ended = EndBySignal(killed ? SIGKILL : SIGSTOP, command, 1, &victim);
    EXPECT_EQ(ended.code, 128 + SIGKILL) << ended.err;
    // MPI may not return from a write to the dead rank: then Slurm ends the other one.
    if (killed && ended.err.find("srun: error: n1: task 0: Killed") != std::string::npos) continue;
    EXPECT_NE(ended.err.find("\nerror: rank 0 on n1: "), std::string::npos) << ended.err;
    const std::string silent = "rank 1 on n2 does not answer for ";
    const size_t at = ended.err.find(silent);
    ASSERT_NE(at, std::string::npos) << ended.err;
    const double seconds = std::strtod(ended.err.c_str() + at + silent.size(), nullptr);
    EXPECT_TRUE(seconds >= 4 && seconds < 9) << ended.err;
    EXPECT_NE(ended.err.find(" s, and rank 0 on n1 waits for it\n"), std::string::npos) << ended.err;
  }
}

// The first rank that ends makes srun ask the others to stop, which must not make the run one that was stopped.
TEST_F(Slurm, AnErrorBeforeTheFirstStepIsTheRunsExitCode) {
  const Ended ended = Run(Srun(With(Steps("fsdp=4", 1, "out"), {"--model", "/nowhere"})));
  EXPECT_EQ(ended.code, 1) << ended.err;
  EXPECT_NE(ended.err.find("error: rank 0 on n1: --model /nowhere: "), std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("stopped"), std::string::npos) << ended.err;
}

// It could not save: a checkpoint is written by all ranks.
TEST_F(Slurm, AnOutputFolderThatTheNodesDoNotShareIsRefusedBeforeTheFirstStep) {
  const Ended ended = Run(Srun(Steps("fsdp=4", 1, "/dev/shm/out")));
  EXPECT_EQ(ended.code, 2) << ended.err;
  EXPECT_NE(ended.err.find("error: rank 2 on n2: --output_dir /dev/shm/out: this machine does not see"),
            std::string::npos)
      << ended.err;
}

TEST_F(Slurm, AJobWhoseRankIsKilledIsRequeuedOnlySoManyTimes) {
  setenv("MOST_KILLS", "1", 1);
  const std::string job = Submit(With(Steps("fsdp=4", 100000, "out"), {"--save_steps", "0"}));  // it begins anew
  unsetenv("MOST_KILLS");
  const auto kill_when_it_trains = [&] {
    pid_t victim = 0;
    const size_t begun = Log().size();
    ASSERT_TRUE(Becomes([&] {
      return Log().find("step 5/", begun) != std::string::npos && (victim = ProcessOfTask(2)) > 0;
    })) << Log();
    kill(victim, SIGKILL);
  };

  kill_when_it_trains();
  ASSERT_TRUE(Becomes([&] { return Log().find("requeueing, 1 of 1") != std::string::npos; })) << Log();
  ASSERT_TRUE(Becomes([&] { return JobState(job) == "PENDING\n" && ProcessesOf("slurmstepd").empty(); })) << Log();
  ASSERT_EQ(Run({"scontrol", "update", "JobId=" + job, "StartTime=now"}).code, 0);
  kill_when_it_trains();
  ASSERT_TRUE(Becomes([&] { return JobState(job) == "FAILED\n"; })) << JobState(job) << Log();
  // The log's last line says why.
  const std::string last = Log().substr(Log().rfind('\n', Log().size() - 2) + 1);
  EXPECT_NE(last.find("not requeued"), std::string::npos) << Log();
  EXPECT_TRUE(last.find("rank 2 on n2") != std::string::npos || last.find("n2: task 2: Killed") != std::string::npos)
      << Log();
}

TEST_F(Slurm, AJobThatIsCancelledSavesAndIsNotRequeued) {
  const std::string job = Submit(Steps("fsdp=4", 100000, "out"));
  ASSERT_TRUE(Becomes([&] { return Log().find("step 5/") != std::string::npos; })) << JobState(job) << Log();
  ASSERT_EQ(Run({"scancel", job}).code, 0);
  ASSERT_TRUE(Becomes([&] { return Log().find("not requeued, the job was cancelled") != std::string::npos; })) << Log();
  const auto names = Must(PosixEnv().List(Path("out")));  // srun may have ended before the ranks said so
  EXPECT_TRUE(std::any_of(names.begin(), names.end(), [](const auto& n) { return n.starts_with("checkpoint-"); }));
  EXPECT_TRUE(Becomes([&] { return JobState(job) == "CANCELLED\n"; })) << JobState(job) << Log();
}

TEST_F(Slurm, AStoppedJobIsRequeuedAndResumesWithTheSameBits) {
  const Ended whole = Run(Srun(Steps("fsdp=4", 30, "out")));
  ASSERT_EQ(whole.code, 0) << whole.err;
  ASSERT_TRUE(PosixEnv().Rename(Path("out"), Path("whole")).ok());

  const std::string job = Submit(Steps("fsdp=4", 30, "out"));

  ASSERT_TRUE(Becomes([&] { return Log().find("step 5/") != std::string::npos; })) << JobState(job) << Log();
  ASSERT_EQ(Run({"scancel", "--signal=TERM", job}).code, 0);  // as Slurm does before the time is up
  ASSERT_TRUE(Becomes([&] { return Log().find("requeueing") != std::string::npos; })) << JobState(job) << Log();
  EXPECT_NE(Log().find("of 30, checkpoint saved"), std::string::npos) << Log();
  // Slurm waits two minutes before it restarts a requeued job, while its daemons clean up.
  ASSERT_TRUE(Becomes([&] { return JobState(job) == "PENDING\n" && ProcessesOf("slurmstepd").empty(); })) << Log();
  ASSERT_EQ(Run({"scontrol", "update", "JobId=" + job, "StartTime=now"}).code, 0);
  ASSERT_TRUE(Becomes([&] { return JobState(job) == "COMPLETED\n"; })) << JobState(job) << Log();
  EXPECT_NE(Log().find("resume      from out/checkpoint-"), std::string::npos) << Log();

  for (const std::string& name : Must(PosixEnv().List(Path("out")))) {  // of the stopped run
    if (name.starts_with("checkpoint-") && name != "checkpoint-30") {
      ASSERT_TRUE(PosixEnv().RemoveTree(Path("out/" + name)).ok());
    }
  }
  ExpectSame(Path("whole"), Path("out"));
}

}  // namespace
}  // namespace temper::program::slurm_test
