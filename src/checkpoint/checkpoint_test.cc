// Writing, reading and rotating checkpoints. What happens when it is interrupted: tests/recovery/.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "base/faulty_env.h"
#include "base/no_more_threads.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state_for_test.h"

namespace temper::checkpoint_test {
namespace {

Status SaveTo(Env& env, const std::string& out, CheckpointContents contents, std::optional<int64_t> limit = {}) {
  CheckpointWriter writer(env, {out, limit});
  TEMPER_RETURN_IF_ERROR(writer.Start(std::move(contents)));
  return writer.Finish();
}

std::vector<int64_t> Steps(const std::string& out) {
  std::vector<int64_t> steps;
  for (const auto& entry : Must(ListCheckpoints(PosixEnv(), out))) steps.push_back(entry.step);
  return steps;
}

TEST(Checkpoint, KeepsEveryBit) {
  const ScratchFolder out;
  const SampleState state(7);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  const std::string folder = CheckpointFolder(out.path(), 7);
  ExpectHolds(folder, state);
  const auto reader = CheckpointReader::Open(PosixEnv(), folder);
  EXPECT_EQ(reader->manifest().state, state.Contents().state);
  EXPECT_EQ(reader->manifest().identity, state.Contents().identity);
  EXPECT_EQ(reader->manifest().seconds, 1.25);
  EXPECT_EQ(*reader->ReadText("run.yaml"), "seed: 42\n");
  EXPECT_EQ(reader->ReadText("other.yaml").status().code(), StatusCode::kNotFound);
}

TEST(Checkpoint, BytesDependOnTheRunAlone) {
  const ScratchFolder a, b;
  const SampleState state(7);
  CheckpointContents later = state.Contents();
  later.seconds = 99;
  std::reverse(later.tensors.begin(), later.tensors.end());
  std::swap(later.tensors[1], later.tensors[3]);
  ASSERT_TRUE(SaveTo(PosixEnv(), a.path(), state.Contents()).ok());
  ASSERT_TRUE(SaveTo(PosixEnv(), b.path(), std::move(later)).ok());
  const std::string x = CheckpointFolder(a.path(), 7), y = CheckpointFolder(b.path(), 7);
  const auto names = *PosixEnv().List(x);
  EXPECT_EQ(names, (std::vector<std::string>{"adapter_model.safetensors", "clock.json", "manifest.json", "run.yaml",
                                             "state-00000-of-00001.safetensors"}));
  EXPECT_EQ(names, *PosixEnv().List(y));
  for (const std::string& name : names) {
    if (name == "clock.json") continue;
    EXPECT_TRUE(Slurp(x + "/" + name) == Slurp(y + "/" + name)) << name;
  }
}

TEST(Checkpoint, MemoryMayChangeOnceItWasRead) {
  const ScratchFolder out;
  SampleState state(1, 1, 200'000);
  const SampleState before(1, 1, 200'000);
  CheckpointWriter writer(PosixEnv(), {out.path(), {}});
  ASSERT_TRUE(writer.Start(state.Contents()).ok());
  ASSERT_TRUE(writer.WaitUntilRead().ok());
  for (auto& bytes : state.memory) std::fill(bytes.begin(), bytes.end(), std::byte{0});
  ASSERT_TRUE(writer.Finish().ok());
  ExpectHolds(CheckpointFolder(out.path(), 1), before);
  EXPECT_GT(writer.last_timing().until_durable, writer.last_timing().until_read);
}

// Start must not wait for the disk: every write is held up until Start and a check of WaitUntilRead's waiting are done.
TEST(Checkpoint, IsWrittenInTheBackground) {
  const ScratchFolder out;
  const SampleState state(1);
  std::atomic<bool> go = false;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string&) {
    while (operation == "append" && !go) std::this_thread::yield();
    return OkStatus();
  });
  CheckpointWriter writer(env, {out.path(), {}});
  ASSERT_TRUE(writer.Start(state.Contents()).ok());
  EXPECT_TRUE(Steps(out.path()).empty());
  std::atomic<bool> was_read = false;
  std::thread update([&] {
    EXPECT_TRUE(writer.WaitUntilRead().ok());
    was_read = true;
  });
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_FALSE(was_read);
  go = true;
  update.join();
  ASSERT_TRUE(writer.Finish().ok());
  ExpectHolds(CheckpointFolder(out.path(), 1), state);
}

TEST(Checkpoint, IsWrittenByTheCallerWhereThereAreNoMoreThreads) {
  const ScratchFolder out;
  const SampleState state(1);
  const NoMoreThreads none;
  CheckpointWriter writer(PosixEnv(), {out.path(), {}});
  ASSERT_TRUE(writer.Start(state.Contents()).ok());
  EXPECT_EQ(Steps(out.path()), std::vector<int64_t>{1});
  EXPECT_TRUE(writer.WaitUntilRead().ok());
  EXPECT_TRUE(writer.FinishWithin({1}));
  ExpectHolds(CheckpointFolder(out.path(), 1), state);
}

TEST(Checkpoint, EveryFlippedBitIsFound) {
  const ScratchFolder out;
  const SampleState state(3, 1, 2);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  const std::string folder = CheckpointFolder(out.path(), 3);
  for (const std::string& name : Must(PosixEnv().List(folder))) {
    if (name == "clock.json") continue;
    const std::string path = JoinPath(folder, name), good = Slurp(path);
    for (size_t i = 0; i < good.size(); i += good.size() < 2000 ? 1 : 7) {
      std::string bad = good;
      bad[i] = static_cast<char>(bad[i] ^ (1 << (i % 8)));
      Spill(path, bad);
      EXPECT_FALSE(VerifyAll(PosixEnv(), folder).ok()) << name << " byte " << i;
    }
    for (const size_t n : {size_t{0}, good.size() / 2, good.size() - 1}) {
      Spill(path, good.substr(0, n));
      EXPECT_FALSE(VerifyAll(PosixEnv(), folder).ok()) << name << " cut to " << n;
    }
    Spill(path, good + "x");
    EXPECT_FALSE(VerifyAll(PosixEnv(), folder).ok()) << name << " grown";
    ASSERT_TRUE(PosixEnv().RemoveFile(path).ok());
    const Status missing = VerifyAll(PosixEnv(), folder);
    EXPECT_EQ(missing.code(), StatusCode::kNotFound);
    EXPECT_NE(missing.message().find(name), std::string::npos) << missing.message();
    Spill(path, good);
    ASSERT_TRUE(VerifyAll(PosixEnv(), folder).ok());
  }
}

TEST(Checkpoint, ADamagedTensorIsNamed) {
  const ScratchFolder out;
  const SampleState state(3);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  const std::string path = CheckpointFolder(out.path(), 3) + "/adapter_model.safetensors";
  std::string text = Slurp(path);
  text.back() = static_cast<char>(text.back() ^ 1);
  Spill(path, text);
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 3));
  ASSERT_TRUE(reader.ok());
  const Status bad = VerifyAll(PosixEnv(), CheckpointFolder(out.path(), 3));
  EXPECT_EQ(bad.code(), StatusCode::kCorrupt);
  EXPECT_NE(bad.message().find("adapter_model.safetensors: tensor 'b.weight'"), std::string::npos) << bad.message();
}

TEST(Checkpoint, AnotherShapeIsRefused) {
  const ScratchFolder out;
  const SampleState state(3);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 3));
  std::vector<float> x(5 * 37);
  std::byte* data = reinterpret_cast<std::byte*>(x.data());
  EXPECT_EQ(reader->LoadTensor("a.weight", View{data, {DType::kF32, {5, 37}}}).code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(reader->LoadTensor("c.weight", View{data, {DType::kF32, {37, 5}}}).code(), StatusCode::kNotFound);
}

TEST(Checkpoint, TheSameStepIsReplaced) {
  const ScratchFolder out;
  const SampleState first(5, 1), second(5, 2);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), first.Contents()).ok());
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), second.Contents()).ok());
  ExpectHolds(CheckpointFolder(out.path(), 5), second);
  EXPECT_EQ(PosixEnv().List(out.path())->size(), 1u);
}

TEST(Checkpoint, RotationKeepsTheNewestAndTheBest) {
  const ScratchFolder out;
  CheckpointWriter writer(PosixEnv(), {out.path(), 2});
  const std::map<int64_t, double> losses = {{1, 3.0}, {2, 1.0}, {3, 2.0}, {4, 1.0}, {5, 2.5}};
  for (const auto& [step, loss] : losses) {
    const SampleState state(step);
    ASSERT_TRUE(writer.Start(state.Evaluated(loss)).ok());
    ASSERT_TRUE(writer.Finish().ok());
  }
  EXPECT_EQ(Steps(out.path()), (std::vector<int64_t>{2, 4, 5}));
  EXPECT_EQ((*BestCheckpoint(PosixEnv(), out.path()))->step, 2);
  EXPECT_EQ(Must(ListCheckpoints(PosixEnv(), out.path())).back().step, 5);
  // A better one takes its place.
  const SampleState state(6);
  ASSERT_TRUE(writer.Start(state.Evaluated(0.5)).ok());
  ASSERT_TRUE(writer.Finish().ok());
  EXPECT_EQ(Steps(out.path()), (std::vector<int64_t>{5, 6}));
  EXPECT_EQ(PosixEnv().List(out.path())->size(), 2u);
}

TEST(Checkpoint, RotationWithoutEvaluationKeepsTheNewest) {
  const ScratchFolder out;
  for (const int64_t step : {9, 10, 11, 100}) {
    const SampleState state(step);
    ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents(), 1).ok());
    EXPECT_EQ(Steps(out.path()), std::vector<int64_t>{step});
  }
}

TEST(Checkpoint, RotationLeavesWhatItCannotRead) {
  const ScratchFolder out;
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), SampleState(1).Contents()).ok());
  Spill(out.path() + "/checkpoint-1/manifest.json", "{}");
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), SampleState(2).Contents(), 1).ok());
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), SampleState(3).Contents(), 1).ok());
  EXPECT_EQ(Steps(out.path()), (std::vector<int64_t>{1, 3}));
}

TEST(Checkpoint, OnlyCommittedFoldersOfThatNameCount) {
  const ScratchFolder out;
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), SampleState(12).Contents()).ok());
  for (const char* name :
       {"checkpoint-", "checkpoint-007", "checkpoint-x", "checkpoint--1", "checkpoint-+3", "checkpoint-13",
        "checkpoint-14.tmp", "checkpoint-15.old.tmp", "checkpoint-99999999999999999999"}) {
    ASSERT_TRUE(PosixEnv().CreateFolders(JoinPath(out.path(), name)).ok());
    if (std::string(name) == "checkpoint-13") continue;  // lacks its manifest
    Spill(out.path() + "/" + name + "/manifest.json", "{}");
  }
  EXPECT_EQ(Steps(out.path()), std::vector<int64_t>{12});
  EXPECT_TRUE(ListCheckpoints(PosixEnv(), out.path() + "/missing")->empty());
}

TEST(OutputFolder, LeftoversGoAndOtherFilesStay) {
  const ScratchFolder scratch;
  const std::string out = scratch.path() + "/new/out";
  ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
  ASSERT_TRUE(SaveTo(PosixEnv(), out, SampleState(1).Contents()).ok());
  Spill(out + "/metrics.jsonl", "x");
  for (const char* name : {"checkpoint-2.tmp", "checkpoint-3.old.tmp", "checkpoint-1.tmp"}) {
    ASSERT_TRUE(PosixEnv().CreateFolders(JoinPath(out, name)).ok());
    Spill(out + "/" + name + "/run.yaml", "x");
  }
  ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
  EXPECT_EQ(*PosixEnv().List(out), (std::vector<std::string>{"checkpoint-1", "metrics.jsonl"}));
  ExpectHolds(CheckpointFolder(out, 1), SampleState(1));
}

// A crash between the two renames of a replacement: all of the new one is there.
TEST(OutputFolder, AFinishedSaveIsCommittedAtTheNextStart) {
  const ScratchFolder out;
  const SampleState state(4);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  const std::string folder = CheckpointFolder(out.path(), 4);
  ASSERT_TRUE(PosixEnv().Rename(folder, folder + ".tmp").ok());
  EXPECT_TRUE(Steps(out.path()).empty());
  ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out.path(), KiB(1)).ok());
  ExpectHolds(folder, state);
  // ... but not where anything of it is missing.
  ASSERT_TRUE(PosixEnv().Rename(folder, folder + ".tmp").ok());
  ASSERT_TRUE(PosixEnv().RemoveFile(folder + ".tmp/run.yaml").ok());
  ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out.path(), KiB(1)).ok());
  EXPECT_TRUE(PosixEnv().List(out.path())->empty());
}

TEST(OutputFolder, IsProvedBeforeTraining) {
  const ScratchFolder scratch;
  Spill(scratch.path() + "/file", "x");
  const Status is_file = PrepareOutputFolder(PosixEnv(), scratch.path() + "/file", KiB(1));
  EXPECT_FALSE(is_file.ok());
  EXPECT_NE(is_file.message().find("cannot be used"), std::string::npos) << is_file.message();
  FaultyEnv full(PosixEnv(), [](const std::string& operation, const std::string&) {
    return operation == "append" ? IoError("no space left on device") : OkStatus();
  });
  EXPECT_FALSE(PrepareOutputFolder(full, scratch.path(), KiB(1)).ok());
  const Status too_big = PrepareOutputFolder(PosixEnv(), scratch.path(), GiB(1 << 30));
  EXPECT_EQ(too_big.code(), StatusCode::kIo);
  EXPECT_NE(too_big.message().find("must fit"), std::string::npos) << too_big.message();
}

// A disk with little room: the save is refused before anything is written.
class SmallDisk final : public Env {
 public:
  explicit SmallDisk(Bytes free) : free_(free) {}
  Result<std::unique_ptr<RandomAccessFile>> OpenForRead(const std::string& p) override { return env_.OpenForRead(p); }
  Result<std::unique_ptr<WritableFile>> OpenForWrite(const std::string& p, WriteMode mode) override {
    ++writes;
    return env_.OpenForWrite(p, mode);
  }
  Status Rename(const std::string& a, const std::string& b) override { return env_.Rename(a, b); }
  Status RemoveFile(const std::string& p) override { return env_.RemoveFile(p); }
  Status RemoveTree(const std::string& p) override { return env_.RemoveTree(p); }
  Status CreateFolders(const std::string& p) override { return env_.CreateFolders(p); }
  Status SyncFolder(const std::string& p) override { return env_.SyncFolder(p); }
  Status Truncate(const std::string& p, int64_t n) override { return env_.Truncate(p, n); }
  Result<std::vector<std::string>> List(const std::string& p) override { return env_.List(p); }
  bool IsFile(const std::string& p) override { return env_.IsFile(p); }
  bool IsFolder(const std::string& p) override { return env_.IsFolder(p); }
  Result<Bytes> FreeSpace(const std::string&) override { return free_; }
  int writes = 0;

 private:
  Env& env_ = PosixEnv();
  const Bytes free_;
};

TEST(Checkpoint, TooLittleSpaceIsSaidBeforeWriting) {
  const ScratchFolder out;
  SmallDisk disk(MiB(1));
  CheckpointWriter writer(disk, {out.path(), {}});
  const SampleState state(1);
  const Status refused = writer.Start(state.Contents());
  EXPECT_EQ(refused.code(), StatusCode::kIo);
  EXPECT_NE(refused.message().find("only 1.00 MiB"), std::string::npos) << refused.message();
  EXPECT_EQ(disk.writes, 0);
  EXPECT_FALSE(writer.WaitUntilRead().ok()) << "errors are sticky";
  EXPECT_FALSE(writer.Finish().ok());
}

TEST(Checkpoint, SizeIsKnownBeforehand) {
  const ScratchFolder out;
  const SampleState state(1, 1, 10'000);
  ASSERT_TRUE(SaveTo(PosixEnv(), out.path(), state.Contents()).ok());
  int64_t written = 0;
  for (const std::string& name : Must(PosixEnv().List(CheckpointFolder(out.path(), 1)))) {
    written += static_cast<int64_t>(Slurp(CheckpointFolder(out.path(), 1) + "/" + name).size());
  }
  const Bytes expected = *CheckpointBytes(PosixEnv(), state.Contents());
  EXPECT_GE(expected.v, written);
  EXPECT_LE(expected.v, written + KiB(80).v);
}

}  // namespace
}  // namespace temper::checkpoint_test
