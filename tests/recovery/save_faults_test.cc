// A save in which any one operation fails: the error is reported, earlier checkpoints load, a half-written one is never
// taken for a checkpoint, and the next start continues normally.
#include <gtest/gtest.h>

#include <atomic>

#include "base/faulty_env.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state_for_test.h"

namespace temper::save_faults_test {
namespace {

// Hundreds of saves: in memory if there is such a file system, since syncing to a disk proves nothing here.
std::string QuickFolder() {
  return PosixEnv().IsFolder("/dev/shm") ? "/dev/shm" : testing::TempDir();
}

// Every checkpoint that is listed has all its bytes.
void ExpectOnlyWholeCheckpoints(const std::string& out) {
  for (const CheckpointEntry& entry : Must(ListCheckpoints(PosixEnv(), out))) {
    ExpectHolds(entry.path, SampleState(entry.step));
  }
}

bool Has(const std::string& out, int64_t step) {
  for (const CheckpointEntry& entry : Must(ListCheckpoints(PosixEnv(), out))) {
    if (entry.step == step) return true;
  }
  return false;
}

// Runs a save whose operation number `fail` (from 0) fails. Returns the number of operations.
struct Outcome {
  int operations = 0;
  std::string failed;  // "append .../state.safetensors", empty if there were fewer operations
  Status status;
};
Outcome SaveFailingAt(const std::string& out, int fail, std::optional<int64_t> limit, int64_t step) {
  Outcome outcome;
  std::atomic<int> count = 0;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string& path) {
    if (count++ != fail) return OkStatus();
    outcome.failed = operation + " " + path;
    return IoError("injected: no space left on device");
  });
  CheckpointContents contents = SampleState(step).Contents();
  const SampleState state(step);
  contents.tensors = state.tensors;
  contents.copies = {{"config.json", out + "/../config.json"}};
  CheckpointWriter writer(env, {out, limit});
  outcome.status = writer.Start(contents);
  if (outcome.status.ok()) outcome.status = writer.WaitUntilRead();
  if (outcome.status.ok()) outcome.status = writer.Finish();
  EXPECT_EQ(writer.Finish().ok(), outcome.status.ok()) << "errors are sticky";
  outcome.operations = count;
  return outcome;
}

Status Save(const std::string& out, int64_t step) {
  const SampleState state(step);
  CheckpointWriter writer(PosixEnv(), {out, {}});
  TEMPER_RETURN_IF_ERROR(writer.Start(state.Contents()));
  return writer.Finish();
}

TEST(SaveFaults, AnyFailureLeavesThePreviousCheckpoint) {
  std::set<std::string> seen;
  for (int fail = 0;; ++fail) {
    const ScratchFolder scratch(QuickFolder());
    Spill(scratch.path() + "/config.json", "{}");
    const std::string out = scratch.path() + "/out";
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ASSERT_TRUE(Save(out, 1).ok());
    const Outcome outcome = SaveFailingAt(out, fail, {}, 2);
    if (outcome.failed.empty()) {
      EXPECT_TRUE(outcome.status.ok()) << outcome.status.message();
      EXPECT_GT(outcome.operations, 20);
      break;
    }
    SCOPED_TRACE(outcome.failed);
    seen.insert(outcome.failed.substr(0, outcome.failed.find(' ')));
    EXPECT_FALSE(outcome.status.ok());
    EXPECT_NE(outcome.status.message().find("could not be saved"), std::string::npos) << outcome.status.message();
    EXPECT_TRUE(Has(out, 1));
    ExpectOnlyWholeCheckpoints(out);
    // The next start tidies up and saves.
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ExpectOnlyWholeCheckpoints(out);
    for (const std::string& name : Must(PosixEnv().List(out))) EXPECT_EQ(name.find(".tmp"), std::string::npos) << name;
    ASSERT_TRUE(Save(out, 2).ok());
    EXPECT_TRUE(Has(out, 2));
    ExpectOnlyWholeCheckpoints(out);
  }
  // The hooks did reach the relevant operations.
  for (const char* operation : {"create", "append", "sync", "close", "rename", "folder", "remove", "open", "read"}) {
    EXPECT_TRUE(seen.contains(operation)) << operation;
  }
}

// A disk that is full from some moment on fails every later operation, including the cleanup.
TEST(SaveFaults, ADeadDiskLeavesThePreviousCheckpoint) {
  for (int dead_from = 0; dead_from < 60; ++dead_from) {
    const ScratchFolder scratch(QuickFolder());
    const std::string out = scratch.path();
    ASSERT_TRUE(Save(out, 1).ok());
    std::atomic<int> count = 0;
    FaultyEnv env(PosixEnv(), [&](const std::string&, const std::string&) {
      return count++ < dead_from ? OkStatus() : IoError("injected: input/output error");
    });
    const SampleState state(2);
    CheckpointWriter writer(env, {out, {}});
    Status status = writer.Start(state.Contents());
    if (status.ok()) status = writer.Finish();
    if (status.ok()) break;
    EXPECT_TRUE(Has(out, 1)) << dead_from;
    ExpectOnlyWholeCheckpoints(out);
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ExpectOnlyWholeCheckpoints(out);
    EXPECT_TRUE(Has(out, 1)) << dead_from;
  }
}

// Rotation: whichever operation fails, the new checkpoint is committed first and all listed ones are complete.
TEST(SaveFaults, RotationNeverLosesTheNewest) {
  for (int fail = 0;; ++fail) {
    const ScratchFolder scratch(QuickFolder());
    Spill(scratch.path() + "/config.json", "{}");
    const std::string out = scratch.path() + "/out";
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ASSERT_TRUE(Save(out, 1).ok());
    ASSERT_TRUE(Save(out, 2).ok());
    const Outcome outcome = SaveFailingAt(out, fail, 1, 3);
    if (outcome.failed.empty()) {
      EXPECT_EQ(Must(ListCheckpoints(PosixEnv(), out)).size(), 1u);
      break;
    }
    SCOPED_TRACE(outcome.failed);
    EXPECT_TRUE(Has(out, 2) || Has(out, 3));
    EXPECT_TRUE(!outcome.status.ok() || Has(out, 3));
    ExpectOnlyWholeCheckpoints(out);
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ExpectOnlyWholeCheckpoints(out);
    EXPECT_TRUE(Has(out, 2) || Has(out, 3));
  }
}

// Saving a step again: after the next start there is the old or the new one, whichever operation failed.
TEST(SaveFaults, ReplacingAStepNeverLosesIt) {
  for (int fail = 0;; ++fail) {
    const ScratchFolder scratch(QuickFolder());
    Spill(scratch.path() + "/config.json", "{}");
    const std::string out = scratch.path() + "/out";
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    ASSERT_TRUE(Save(out, 2).ok());
    const Outcome outcome = SaveFailingAt(out, fail, {}, 2);
    if (outcome.failed.empty()) break;
    SCOPED_TRACE(outcome.failed);
    EXPECT_TRUE(Has(out, 2));
    ExpectOnlyWholeCheckpoints(out);
    ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
    EXPECT_TRUE(Has(out, 2));
    ExpectOnlyWholeCheckpoints(out);
  }
}

}  // namespace
}  // namespace temper::save_faults_test
