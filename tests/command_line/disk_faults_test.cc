// Disk faults in a run with states or weights on that disk: it ends with an error that names the file, its checkpoints
// are complete, and resuming gives the same result as a run without a fault.
#include "temper_program.h"

namespace temper::program::disk_faults_test {
namespace {

// Saves often and runs long enough to be still running at a fault after the second save.
Arguments LongRun(const Arguments& more) {
  Arguments run = Train({"--max_steps", "24", "--save_steps", "2", "--save_total_limit", "2"});
  run = With(run, more);
  return run;
}
const Arguments kSpills = {"--method",           "full", "--memory.optimizer", "disk",
                           "--memory.gradients", "disk", "--memory.disk",      "spill"};
const Arguments kStreams = {"--method", "lora", "--memory.weights", "disk", "--model", "model"};

class DiskFaults : public Workplace {
 protected:
  DiskFaults() { CopyModel("model"); }
  void SetUp() override {
#ifdef TEMPER_SANITIZED
    GTEST_SKIP() << "a sanitizer's library would have to be loaded before ours";
#endif
  }

  // The same run on a disk that fails once the second checkpoint exists.
  Ended RunOnFailingDisk(const Arguments& run, const std::string& path, const std::string& call,
                         const std::string& how) const {
    Arguments command = {"env",
                         "LD_PRELOAD=" + std::string(kBuildFolder) + "/libfailing_disk.so",
                         "FAIL_PATH=" + path,
                         "FAIL_ONCE=" + Path("out/checkpoint-4/manifest.json"),
                         "FAIL_CALL=" + call,
                         "FAIL_AS=" + how,
                         kProgram};
    command = With(command, run);
    return Process(command, folder()).Wait();
  }

  // The last checkpoint is complete, and a run resumed from it ends like one without a fault.
  void GoesOnAs(const Arguments& run, const std::string& undisturbed) const {
    std::vector<int64_t> steps;
    for (const std::string& name : Must(PosixEnv().List(Path("out")))) {
      if (name.starts_with("checkpoint-")) steps.push_back(std::stoll(name.substr(11)));
    }
    ASSERT_FALSE(steps.empty());
    const int64_t last = *std::max_element(steps.begin(), steps.end());
    EXPECT_GE(last, 4);
    EXPECT_LT(last, 24) << "it was not stopped";
    const Ended inspected = Temper({"inspect", fmt::format("out/checkpoint-{}", last)});
    EXPECT_EQ(inspected.code, 0) << inspected.err;
    Arguments on = run;
    on.push_back("--resume");
    const Ended resumed = Temper(on);
    ASSERT_EQ(resumed.code, 0) << resumed.err;
    EXPECT_NE(resumed.err.find(fmt::format("resume      from out/checkpoint-{}", last)), std::string::npos);
    EXPECT_EQ(Losses(Path("out")), Losses(Path(undisturbed)));
    for (const char* result : {"model.safetensors", "adapter_model.safetensors"}) {
      if (Has(JoinPath(undisturbed, result))) {
        EXPECT_TRUE(Slurp(JoinPath("out", result)) == Slurp(JoinPath(undisturbed, result))) << result;
      }
    }
  }

  void Undisturbed(Arguments run) const {
    run = With(run, {"--output_dir", "whole"});
    const Ended ended = Temper(run);
    ASSERT_EQ(ended.code, 0) << ended.err;
  }
};

TEST_F(DiskFaults, PowerThatGoesWhenARunHasEndedTakesNothingOfIt) {
  for (const char* names : {"lost", "kept"}) {
    const std::string out = fmt::format("new/{}", names);  // folders whose own names must last, too
    const Arguments environment = {"env", "LD_PRELOAD=" + std::string(kBuildFolder) + "/libpower_loss.so",
                                   "POWER_PATH=" + Path("new"), std::string("POWER_NAMES=") + names, kProgram};
    const Ended ended =
        Process(With(environment, Train({"--max_steps", "2", "--save_steps", "1", "--output_dir", out})), folder())
            .Wait();
    ASSERT_EQ(ended.code, 0) << ended.err;
    ASSERT_NE(ended.err.find("POWER LOST after the end"), std::string::npos) << ended.err;
    for (const char* kept : {"adapter_model.safetensors", "checkpoint-1", "checkpoint-2"}) {
      const Ended inspected = Temper({"inspect", JoinPath(out, kept)});
      EXPECT_EQ(inspected.code, 0) << inspected.err;
    }
  }
}

TEST_F(DiskFaults, AFullFailingOrVanishedSpillDiskEndsTheRunAndKeepsCheckpoints) {
  const Arguments run = LongRun(kSpills);
  Undisturbed(run);
  struct Fault {
    std::string call, how, said;
  };
  for (const Fault& fault : {Fault{"pwrite", "ENOSPC", "No space left on device"},
                             Fault{"pread", "EIO", "Input/output error"}, Fault{"both", "ENODEV", "No such device"}}) {
    SCOPED_TRACE(fault.how);
    ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
    ExpectEnd(RunOnFailingDisk(run, Path("spill"), fault.call, fault.how), 1,
              {"error: ", "of the spill file in spill", fault.said});
    EXPECT_TRUE(Must(PosixEnv().List(Path("spill"))).empty());
    GoesOnAs(run, "whole");
  }
}

TEST_F(DiskFaults, AnUnreadableWeightsFileEndsTheRunAndKeepsCheckpoints) {
  const Arguments run = LongRun(kStreams);
  Undisturbed(run);
  ExpectEnd(RunOnFailingDisk(run, Path("model/model.safetensors"), "pread", "EIO"), 1,
            {"error: ", "reading tensor 'model.", "model/model.safetensors", "Input/output error"});
  GoesOnAs(run, "whole");
}

TEST_F(DiskFaults, ShortReadsAndWritesAreContinued) {
  for (const auto& [options, path] : {std::pair{kSpills, Path("spill")}, {kStreams, Path("model/model.safetensors")}}) {
    const Arguments run = LongRun(options);
    Undisturbed(run);
    const Ended ended = RunOnFailingDisk(run, path, "both", "short");
    ASSERT_EQ(ended.code, 0) << ended.err;
    EXPECT_EQ(Losses(Path("out")), Losses(Path("whole")));
    for (const char* folder : {"out", "whole"}) ASSERT_TRUE(PosixEnv().RemoveTree(Path(folder)).ok());
  }
}

// Another model is copied over this one, or a download restarts, while the run reads from it.
TEST_F(DiskFaults, AWeightsFileChangedOrTruncatedDuringARunEndsItAndKeepsCheckpoints) {
  const Arguments run = LongRun(kStreams);
  Undisturbed(run);
  const std::string file = Path("model/model.safetensors"), whole = temper::Slurp(file);
  for (const bool truncated : {true, false}) {
    SCOPED_TRACE(truncated ? "truncated" : "changed");
    ASSERT_TRUE(PosixEnv().RemoveTree(Path("out")).ok());
    Process process(Command(run), folder());
    ASSERT_TRUE(process.ReadErrUntil("step 6"));  // the save of step 4 has ended, since that of step 6 waited for it
    if (truncated) {
      ASSERT_TRUE(PosixEnv().Truncate(file, static_cast<int64_t>(whole.size() / 2)).ok());
    } else {
      std::fstream in_place(file, std::ios::in | std::ios::out | std::ios::binary);
      in_place.seekp(static_cast<std::streamoff>(whole.size() / 2));
      in_place << "other weights";
    }
    ExpectEnd(process.Wait(), 1,
              {"error: ", "reading tensor 'model.", "model/model.safetensors", "has changed during the run",
               "resume from the last checkpoint"});
    temper::Spill(file, whole);
    GoesOnAs(run, "whole");
  }
}

}  // namespace
}  // namespace temper::program::disk_faults_test
