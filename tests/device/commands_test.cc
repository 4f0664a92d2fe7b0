// Every command on a device whose memory the host cannot touch gives the bytes of the same command on the host.
#include <fmt/core.h>
#include <signal.h>

#include <chrono>

#define TEMPER_PROGRAM "/proc/self/exe"
#include "../command_line/temper_program.h"
#include "run/machine_limits.h"

namespace temper::program::commands_test {
namespace {

class OnDevice : public Workplace {
 protected:
  Ended Run(Arguments arguments, const std::string& device, const std::string& cwd = "") const {
    arguments.insert(arguments.begin(), "--temper");
    arguments.insert(arguments.end(), {"--device", device});
    return RunTemper(arguments, cwd.empty() ? folder() : cwd);
  }
  // The same relative paths in each folder: they are saved.
  std::string Folder(const std::string& name) const {
    TEMPER_CHECK(PosixEnv().CreateFolders(Path(name)).ok());
    for (const char* file : {"d.jsonl", "e.jsonl"}) Spill(JoinPath(name, file), Slurp(file));
    return Path(name);
  }
  // The results of two runs are equal except for the name of the device.
  static void ExpectSameResults(const std::string& host, const std::string& device) {
    const auto expected = BytesOf(host), got = BytesOf(device);
    EXPECT_GT(expected.size(), 8u);
    for (const auto& [name, bytes] : expected) {
      if (name.ends_with("run.yaml") || name.ends_with("manifest.json")) continue;
      const auto it = got.find(name);
      ASSERT_NE(it, got.end()) << name;
      EXPECT_TRUE(it->second == bytes) << name << " differs";
    }
  }
  // Trains with a save in between, on the host and on the device; resumes there from the save; uses the result.
  // `use`: options of the commands that use it.
  void GivesTheBytesOfTheHost(const Arguments& options, const Arguments& use = {}) {
    Arguments run = Train({"--max_steps", "8", "--save_steps", "4", "--eval_data", "e.jsonl", "--eval_steps", "4"});
    run.insert(run.end(), options.begin(), options.end());
    const std::string host = Folder("host"), device = Folder("device"), resumed = Folder("resumed");
    const Ended on_host = Run(run, "cpu", host);
    ASSERT_EQ(on_host.code, 0) << on_host.err;
    const Ended on_device = Run(run, "gpu", device);
    ASSERT_EQ(on_device.code, 0) << on_device.err;
    EXPECT_NE(on_device.err.find("device      a device apart"), std::string::npos) << on_device.err;
    ExpectSameResults(host + "/out", device + "/out");

    // Checkpoints are interchangeable: the device resumes from the host's.
    Arguments on = run;
    on.push_back("--resume=" + host + "/out/checkpoint-4");
    const Ended went_on = Run(on, "gpu", resumed);
    ASSERT_EQ(went_on.code, 0) << went_on.err;
    for (const auto& [name, bytes] : BytesOf(host + "/out/checkpoint-8")) {
      if (!name.ends_with(".safetensors")) continue;
      EXPECT_TRUE(temper::Slurp(resumed + "/out/checkpoint-8/" + name) == bytes) << name << " differs";
    }

    const auto same_output = [&](const Arguments& arguments) {
      const Ended want = Run(arguments, "cpu", host), got = Run(arguments, "gpu", device);
      ASSERT_EQ(want.code, 0) << want.err;
      ASSERT_EQ(got.code, 0) << got.err;
      EXPECT_FALSE(want.out.empty());
      EXPECT_EQ(got.out, want.out);
    };
    same_output(
        With({"generate", "--model", "out", "--prompt", "Ships", "--max_new_tokens", "12", "--threads", "1"}, use));
    same_output(With({"eval", "--model", "out", "--data", "e.jsonl", "--max_seq_len", "96", "--threads", "1"}, use));
  }
};

// Of the head: adapters of other products are part of these on the host, and apart on devices
// (compile/step/join_adapters.h), which rounds otherwise. tests/equivalence/device_test.cc has those.
Arguments AdapterOfTheHead(Arguments more) {
  Arguments all = {"--lora.target_modules", "lm_head"};
  all.insert(all.end(), more.begin(), more.end());
  return all;
}

TEST_F(OnDevice, LoraIsTrainedResumedEvaluatedAndUsedWithTheBytesOfTheHost) {
  GivesTheBytesOfTheHost(AdapterOfTheHead({"--dtype", "f32", "--lora.dropout", "0.1", "--memory.recompute", "block"}),
                         {"--dtype", "f32"});
}

TEST_F(OnDevice, LoraOnAQuantisedBaseIsTrainedResumedEvaluatedAndUsedWithTheBytesOfTheHost) {
  GivesTheBytesOfTheHost(AdapterOfTheHead({"--dtype", "bf16", "--base_dtype", "nf4"}),
                         {"--dtype", "bf16", "--base_dtype", "nf4"});
}

TEST_F(OnDevice, AllWeightsAreTrainedWithTheBytesOfTheHost) {
  GivesTheBytesOfTheHost({"--method", "full", "--dtype", "bf16"}, {"--dtype", "bf16"});
}

TEST_F(OnDevice, AModelFromScratchStartsWithTheWeightsOfTheHost) {
  const Arguments run = Train({"--method", "full", "--dtype", "bf16", "--from_scratch", "true", "--max_steps", "2"});
  const std::string host = Folder("host"), device = Folder("device");
  const Ended on_host = Run(run, "cpu", host), on_device = Run(run, "gpu", device);
  ASSERT_EQ(on_host.code, 0) << on_host.err;
  ASSERT_EQ(on_device.code, 0) << on_device.err;
  ExpectSameResults(host + "/out", device + "/out");
}

TEST_F(OnDevice, ReplayingChangesNothing) {
  const std::string whole = Folder("whole"), piecewise = Folder("piecewise");
  const Arguments run = Train({"--max_steps", "5"});
  Arguments plain = run;
  plain.insert(plain.end(), {"--graphs", "false"});
  ASSERT_EQ(Run(run, "gpu", whole).code, 0);
  ASSERT_EQ(Run(plain, "gpu", piecewise).code, 0);
  ExpectSameResults(whole + "/out", piecewise + "/out");
}

TEST_F(OnDevice, TheDeviceIsTheDefaultWhereThereIsOne) {
  Arguments run = Train({"--max_steps", "1"});
  run.insert(run.begin(), "--temper");
  const Ended found = RunTemper(run, Folder("found"));
  ASSERT_EQ(found.code, 0) << found.err;
  EXPECT_NE(found.err.find("a device apart was found"), std::string::npos) << found.err;
  setenv("APART_GPU", "none", 1);
  const Ended none = RunTemper(run, Folder("none"));
  setenv("APART_GPU", "old", 1);
  const Ended old = RunTemper(run, Folder("old"));
  unsetenv("APART_GPU");
  EXPECT_EQ(none.code, 0) << none.err;
  EXPECT_EQ(none.err.find("device      "), std::string::npos) << none.err;
  EXPECT_EQ(old.code, 0) << old.err;
  EXPECT_NE(old.err.find("computing on the CPU: GPU 0 (a device apart): its compute capability is 7.0"),
            std::string::npos)
      << old.err;
}

TEST_F(OnDevice, DoctorListsDevicesAndMeasuresThem) {
  setenv("APART_GPU", "one", 1);
  setenv("APART_GPU_HOLDERS", "python3 (process 4711) holds 1.00 GiB", 1);
  const Ended doctor = RunTemper({"--temper", "doctor"}, folder());
  unsetenv("APART_GPU");
  unsetenv("APART_GPU_HOLDERS");
  ASSERT_EQ(doctor.code, 0) << doctor.err;
  for (const char* said : {"gpu 0       a device apart, compute capability 9.0", "in use; python3 (process 4711) holds",
                           "between     libnccl.so.2 2.28.9", "TFLOP/s in matrix products of bf16", "GB/s within",
                           "what --dtype auto and --device auto"}) {
    EXPECT_NE(doctor.out.find(said), std::string::npos) << "'" << said << "' is not said in:\n" << doctor.out;
  }
}

TEST_F(OnDevice, WhatCannotBeUsedIsToldInOneLineBeforeWeightsAreRead) {
  setenv("APART_GPU", "none", 1);
  const Ended train = Run(Train({}), "gpu");
  const Ended generate = Run({"generate", "--model", kModel, "--prompt", "x"}, "gpu");
  setenv("APART_GPU", "old", 1);
  const Ended old = Run({"eval", "--model", kModel, "--data", "e.jsonl"}, "gpu");
  setenv("APART_GPU", "full", 1);
  const Ended full = Run(Train({}), "gpu");
  unsetenv("APART_GPU");
  ExpectEnd(full, 1, {"another process may hold the rest"});
  EXPECT_EQ(full.err.find("load"), std::string::npos) << full.err;
  ExpectEnd(train, 1, {"no GPU was found"});
  ExpectEnd(generate, 1, {"no GPU was found"});
  ExpectEnd(old, 1, {"a device apart", "bf16 needs 8.0"});
  EXPECT_EQ(train.err.find("load"), std::string::npos) << train.err;
}

// Where values live changes no byte of a result, beside a device or without one.
TEST_F(OnDevice, EveryPlacementOfValuesGivesTheBytesOfTheHost) {
  struct Placement {
    const char* name;
    Arguments method, memory;
  };
  const Arguments lora = AdapterOfTheHead({"--dtype", "bf16", "--lora.dropout", "0.1"}),
                  full = {"--method", "full", "--dtype", "bf16"};
  for (const auto& [name, method, memory] :
       {Placement{"host", full, {"--memory.tiers", "host"}},
        Placement{"optimizer", full, {"--memory.optimizer", "host"}},
        Placement{"disk", full, {"--memory.optimizer", "disk", "--memory.disk", "spill"}},
        Placement{"frozen", lora, {"--memory.weights", "disk", "--memory.activations", "host"}},
        Placement{"frozen_host", lora, {"--memory.weights", "host"}}}) {
    SCOPED_TRACE(name);
    Arguments run = Train({"--max_steps", "4", "--save_steps", "2", "--eval_data", "e.jsonl", "--eval_steps", "2"});
    run.insert(run.end(), method.begin(), method.end());
    const std::string plain = Folder(std::string("plain_") + name), placed = Folder(std::string("placed_") + name);
    const Ended on_host = Run(run, "cpu", plain);
    ASSERT_EQ(on_host.code, 0) << on_host.err;
    run.insert(run.end(), memory.begin(), memory.end());
    const Ended on_device = Run(run, "gpu", placed);
    ASSERT_EQ(on_device.code, 0) << on_device.err;
    EXPECT_NE(on_device.err.find("memory      "), std::string::npos) << on_device.err;
    for (const auto& [file, bytes] : BytesOf(plain + "/out")) {
      if (!file.ends_with(".safetensors")) continue;
      EXPECT_TRUE(Slurp(placed + "/out/" + file) == bytes) << file << " differs";
    }
  }
}

// While this lives, the GPU has `room` for the arena of a run of one rank, and no more.
class RoomOnDevice {
 public:
  explicit RoomOnDevice(Bytes room) {
    const Bytes beside = GiB(1) - RoomOnGpu(Program(), GiB(1));
    setenv("APART_GPU_FREE", std::to_string((room + beside).v).c_str(), 1);
    setenv("APART_GPU_HOLDERS", "python3 (process 4711) holds 79.00 GiB", 1);
  }
  ~RoomOnDevice() {
    unsetenv("APART_GPU_FREE");
    unsetenv("APART_GPU_HOLDERS");
  }
};

// A run that sets no limits is limited by what is free on the GPU.
TEST_F(OnDevice, ARunThatDoesNotFitWhatIsFreeIsPlacedWithinItAndGivesTheSameBytes) {
  constexpr char kLimits[] = "everything on the GPU takes ";
  const Arguments run = Train({"--method", "full", "--dtype", "bf16", "--save_steps", "2"});
  const std::string whole = Folder("whole"), within = Folder("within"), resumed = Folder("resumed");
  const Ended everywhere = Run(run, "gpu", whole);
  ASSERT_EQ(everywhere.code, 0) << everywhere.err;
  EXPECT_EQ(everywhere.err.find(kLimits), std::string::npos) << everywhere.err;
  const auto peak = [&](const std::string& folder, const char* of) {
    const Json row = Json::parse(FirstLines(folder + "/out/metrics.jsonl", 1));
    return row.contains(of) ? row[of].get<int64_t>() : int64_t{0};
  };
  const int64_t arena = peak(whole, "device_peak_bytes");
  {
    const RoomOnDevice room(Bytes{arena * 6 / 10});
    const Ended placed = Run(run, "gpu", within);
    ASSERT_EQ(placed.code, 0) << placed.err;
    for (const char* said : {kLimits, "python3 (process 4711) holds 79.00 GiB", "on the host"}) {
      EXPECT_NE(placed.err.find(said), std::string::npos) << "'" << said << "' is not said in:\n" << placed.err;
    }
    Arguments plan = run;
    plan[0] = "plan";
    const Ended planned = Run(plan, "gpu", within);
    EXPECT_NE(planned.out.find(kLimits), std::string::npos) << "a plan is the run: " << planned.out << planned.err;
  }
  EXPECT_LE(peak(within, "device_peak_bytes"), arena * 6 / 10);
  EXPECT_GT(peak(within, "host_peak_bytes"), 0);
  EXPECT_GT(arena, 0);
  for (const auto& [file, bytes] : BytesOf(whole + "/out")) {
    if (!file.ends_with(".safetensors")) continue;
    EXPECT_TRUE(Slurp(within + "/out/" + file) == bytes) << file << " differs";
  }
  // Then with all of its memory, as if it had been there before.
  Arguments on = run;
  on.push_back("--resume=" + within + "/out/checkpoint-2");
  const Ended went_on = Run(on, "gpu", resumed);
  ASSERT_EQ(went_on.code, 0) << went_on.err;
  EXPECT_EQ(went_on.err.find("another environment"), std::string::npos) << went_on.err;
  EXPECT_TRUE(Slurp(resumed + "/out/model.safetensors") == Slurp(whole + "/out/model.safetensors"));

  const RoomOnDevice none(KiB(64));
  ExpectEnd(Run(run, "gpu", Folder("none")), 1, {kLimits, "python3 (process 4711)"});
}

TEST_F(OnDevice, AModelThatDoesNotFitWhatIsFreeGeneratesAndEvaluatesTheSame) {
  for (const Arguments& what : {Arguments{"eval", "--data", "e.jsonl", "--max_seq_len", "96"},
                                Arguments{"generate", "--prompt", "Ships", "--max_new_tokens", "6"}}) {
    SCOPED_TRACE(what[0]);
    Arguments command = what;
    command.insert(command.end(), {"--model", kModel, "--dtype", "f32", "--threads", "1"});
    const Ended everywhere = Run(command, "gpu");
    ASSERT_EQ(everywhere.code, 0) << everywhere.err;
    const RoomOnDevice room(Bytes{static_cast<int64_t>(temper::Slurp(kModel + "/model.safetensors").size()) * 3 / 2});
    const Ended within = Run(command, "gpu");
    ASSERT_EQ(within.code, 0) << within.err;
    EXPECT_NE(within.err.find("everything on the GPU takes "), std::string::npos) << within.err;
    EXPECT_EQ(within.out, everywhere.out);
  }
}

TEST_F(OnDevice, RanksOnADeviceEachGiveTheBytesOfRanksOnTheHost) {
  for (const char* mesh : {"dp=2", "fsdp=2", "cp=2"}) {
    SCOPED_TRACE(mesh);
    const std::string name(mesh, 2);
    Arguments run = Train({"--max_steps", "4", "--save_steps", "2", "--nprocs", "2", "--mesh", mesh, "--dtype", "bf16",
                           "--method", name == "cp" ? "lora" : "full"});
    if (name == "cp") run = With(run, AdapterOfTheHead({}));
    const std::string host = Folder("host_" + name), device = Folder("device_" + name);
    const Ended on_host = Run(run, "cpu", host), on_device = Run(run, "gpu", device);
    ASSERT_EQ(on_host.code, 0) << on_host.err;
    ASSERT_EQ(on_device.code, 0) << on_device.err;
    EXPECT_NE(on_device.err.find("libnccl.so.2 2.28.9"), std::string::npos) << on_device.err;
    ExpectSameResults(host + "/out", device + "/out");
  }
}

TEST_F(OnDevice, TheArenaIsRegisteredWithEachCommunicatorBeforeItIsUsed) {
  const Arguments run = Train({"--max_steps", "2", "--nprocs", "2", "--mesh", "dp=2"});
  setenv("TEST_NCCL_REGISTERED_ONLY", "1", 1);
  const Ended told = Run(run, "gpu");
  setenv("TEST_NCCL_NO_MEMORY", "1", 1);
  const Ended untold = Run(run, "gpu", Folder("untold"));
  unsetenv("TEST_NCCL_NO_MEMORY");
  unsetenv("TEST_NCCL_REGISTERED_ONLY");
  EXPECT_EQ(told.code, 0) << told.err;
  EXPECT_NE(untold.code, 0) << "the library of the tests does not see that it was told of none";
}

TEST_F(OnDevice, StagesOfAPipelineLoadTheirKernelsBeforeTheyMayWaitForEachOther) {
  constexpr char kLoaded[] = "kernels are loaded when a GPU is opened";
  const Ended stages = Run(Train({"--max_steps", "2", "--nprocs", "2", "--mesh", "pp=2"}), "gpu");
  ASSERT_EQ(stages.code, 0) << stages.err;
  EXPECT_NE(stages.err.find(kLoaded), std::string::npos) << stages.err;
  const Ended alike = Run(Train({"--max_steps", "2", "--nprocs", "2", "--mesh", "dp=2"}), "gpu", Folder("alike"));
  ASSERT_EQ(alike.code, 0) << alike.err;
  EXPECT_EQ(alike.err.find(kLoaded), std::string::npos) << alike.err;
}

// The other rank waits on its device for the sums of a step.
TEST_F(OnDevice, ARankThatIsStoppedEndsTheRunWithOneMessage) {
  Arguments run = Train({"--max_steps", "100000", "--nprocs", "2", "--mesh", "fsdp=2", "--method", "full",
                         "--watch.idle_seconds", "2", "--device", "gpu"});
  run.insert(run.begin(), "--temper");
  Process ranks(Command(run), folder());
  ASSERT_TRUE(ranks.ReadErrUntil("step 3/"));
  const pid_t victim = ProcessOfRank(ranks.pid(), 1);
  ASSERT_GT(victim, 0);
  kill(victim, SIGSTOP);
  const auto begin = std::chrono::steady_clock::now();
  const Ended ended = ranks.Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(30));
  EXPECT_NE(ended.code, 0);
  const size_t error = ended.err.find("error: ");
  ASSERT_NE(error, std::string::npos) << ended.err;
  EXPECT_EQ(ended.err.find("error: ", error + 1), std::string::npos) << ended.err;
  EXPECT_NE(ended.err.find(fmt::format("error: rank 1 (process {}) gives no sign of life", victim)), std::string::npos)
      << ended.err;
}

TEST_F(OnDevice, RanksWithoutADeviceEachOrALibraryAreToldSoInALine) {
  const Arguments run = Train({"--nprocs", "2", "--mesh", "dp=2"});
  setenv("APART_GPU", "one", 1);
  const Ended one = Run(run, "gpu");
  unsetenv("APART_GPU");
  ExpectEnd(one, 1, {"2 ranks on this machine need a GPU each, but one GPU can be used"});
  setenv("APART_GPU", "same", 1);
  const Ended same = Run(run, "gpu");
  unsetenv("APART_GPU");
  ExpectEnd(same, 1, {"ranks 0 and 1 have the same GPU", "CUDA_VISIBLE_DEVICES"});
  EXPECT_EQ(same.err.find("load"), std::string::npos) << "before weights are read: " << same.err;
  setenv("TEST_NCCL_VERSION", "20900", 1);
  const Ended old = Run(run, "gpu");
  unsetenv("TEST_NCCL_VERSION");
  ExpectEnd(old, 1, {"libnccl.so.2 is version 2.9.0: 2.19 or newer is needed"});
  EXPECT_EQ(old.err.find("load"), std::string::npos) << "before weights are read: " << old.err;
}

}  // namespace
}  // namespace temper::program::commands_test
