// What goes wrong under a run: failing, full and vanishing disks, weights that change. Each is an error that says which
// file, which tensor, why, and what to do; the tier stays usable for what was not hit.
#include <unistd.h>

#include <atomic>

#include "base/faulty_env.h"
#include "disk/disk_tier.h"
#include "disk/model_files_for_test.h"

namespace temper::disk_faults_test {
namespace {

void ExpectSays(const Status& status, StatusCode code, std::initializer_list<std::string> words) {
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& word : words) {
    EXPECT_NE(status.message().find(word), std::string::npos) << "'" << word << "' is not in: " << status.message();
  }
}

// A model of one tensor of 3 MiB, mapped at 0.
class MappedFaults : public testing::Test {
 protected:
  MappedFaults() : path_(scratch_ / "model.safetensors") { WriteAnew(); }
  void WriteAnew() { WriteModelFile(path_, {{"w", {DType::kF32, {768, 1024}}}}); }
  Result<std::unique_ptr<DiskTier>> Open(Env& env) {
    const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch_.path()));
    return OpenMappedAs(env, weights);
  }
  static Result<std::unique_ptr<DiskTier>> OpenMappedAs(Env& env, const ModelWeights& weights) {
    const ModelWeights::Entry w = Must(weights.Require("w"));
    return DiskTier::Create(env, {"", Bytes{0}, {{Bytes{0}, Must(FindSlice(w, WholeOf(w, DType::kF32)))}}});
  }

  const ScratchFolder scratch_;
  const std::string path_;
  std::vector<std::byte> memory_ = std::vector<std::byte>(768 * 1024 * 4);
};

// The clock that stamps files may tick at 10 ms only.
void AwaitTickOfFileClock() {
  usleep(20'000);
}

TEST_F(MappedFaults, AFailingDiskIsToldWithFileAndTensorAndTheNextReadMayGoWell) {
  std::atomic<int> reads = 0;
  std::atomic<bool> fails = true;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string& path) {
    if (operation != "read") return OkStatus();
    return ++reads == 3 && fails ? IoError("cannot read " + path + ": Input/output error") : OkStatus();
  });
  const auto tier = Must(Open(env));
  ExpectSays(tier->Read(Bytes{0}, memory_), StatusCode::kIo, {path_, "tensor 'w'", "bytes ", "Input/output error"});
  fails = false;
  Must(tier->Read(Bytes{0}, memory_));
  EXPECT_TRUE(memory_ == RandomTensor({DType::kF32, {768, 1024}}, 0));
}

TEST_F(MappedFaults, ATruncatedFileIsToldAsChanged) {
  const auto tier = Must(Open(PosixEnv()));
  Must(tier->Read(Bytes{0}, memory_));
  ASSERT_TRUE(PosixEnv().Truncate(path_, 1'000'000).ok());
  const Status read = tier->Read(Bytes{0}, memory_);
  ExpectSays(
      read, StatusCode::kCorrupt,
      {path_, "tensor 'w'", "has changed during the run", "is 1000000 bytes", "resume from the last checkpoint"});
  // What is left of it is of another file, too.
  ExpectSays(tier->Read(Bytes{0}, std::span(memory_).first(4096)), StatusCode::kCorrupt,
             {path_, "has changed during the run"});
}

TEST_F(MappedFaults, AFileWrittenAnewInItsPlaceIsTold) {
  const auto tier = Must(Open(PosixEnv()));
  AwaitTickOfFileClock();
  auto file = Must(PosixEnv().OpenForWrite(path_, WriteMode::kAppend));
  Must(file->Append("x"));
  Must(file->Close());
  ASSERT_TRUE(PosixEnv().Truncate(path_, Must(PosixEnv().OpenForRead(path_))->size().v - 1).ok());
  ExpectSays(tier->Read(Bytes{4096}, std::span(memory_).first(100)), StatusCode::kCorrupt,
             {path_, "has changed during the run"});
}

// Others may update a model's folder by renaming; what is open stays what it was.
TEST_F(MappedFaults, AFileThatIsDeletedOrRenamedOverIsReadToTheEnd) {
  const auto tier = Must(Open(PosixEnv()));
  ASSERT_TRUE(PosixEnv().RemoveFile(path_).ok());
  WriteModelFile(path_, {{"other", {DType::kF32, {3}}}});
  Must(tier->Read(Bytes{0}, memory_));
  EXPECT_TRUE(memory_ == RandomTensor({DType::kF32, {768, 1024}}, 0));
}

TEST_F(MappedFaults, AFileReplacedBetweenHeaderAndTierIsRefused) {
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch_.path()));
  WriteAnew();  // written beside it and renamed
  ExpectSays(OpenMappedAs(PosixEnv(), weights).status(), StatusCode::kCorrupt, {path_, "was replaced"});
  ASSERT_TRUE(PosixEnv().RemoveFile(path_).ok());
  ExpectSays(OpenMappedAs(PosixEnv(), weights).status(), StatusCode::kNotFound, {path_});
}

TEST_F(MappedFaults, AFileTheTierMayNotOpenIsTold) {
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string& path) {
    return operation == "open" ? IoError("cannot open " + path + ": Too many open files") : OkStatus();
  });
  ExpectSays(Open(env).status(), StatusCode::kIo, {path_, "Too many open files"});
}

TEST(SpillFaults, ADiskThatIsTooSmallIsToldBeforeTheRun) {
  const ScratchFolder scratch;
  const Bytes needed = Must(PosixEnv().FreeSpace(scratch.path())) * 2;
  ExpectSays(DiskTier::Create(PosixEnv(), {scratch.path(), needed, {}}).status(), StatusCode::kIo,
             {"spills " + ToString(needed), "cannot reserve", scratch.path(), "are free", "memory.disk"});
  EXPECT_TRUE(Must(PosixEnv().List(scratch.path())).empty());
}

TEST(SpillFaults, AFolderThatCannotBeMadeIsTold) {
  const ScratchFolder scratch;
  const std::string file = scratch / "file";
  Must(WriteTextFileAtomically(PosixEnv(), file, "in the way"));
  ExpectSays(DiskTier::Create(PosixEnv(), {JoinPath(file, "spill"), KiB(4), {}}).status(), StatusCode::kIo, {file});
}

// A copy-on-write file system may be full in spite of the reservation; a disk may be pulled out.
TEST(SpillFaults, AFullOrVanishedDiskIsToldAndSpoilsOnlyWhatWasWritten) {
  const ScratchFolder scratch;
  std::string failing;
  std::atomic<int> calls = 0;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string& path) {
    return operation == failing && ++calls == 2 ? IoError("cannot " + operation + " " + path + ": it is gone")
                                                : OkStatus();
  });
  const auto tier = Must(DiskTier::Create(env, {scratch.path(), MiB(12), {}}));
  std::vector<std::byte> data(4 << 20, std::byte{7}), other(4 << 20, std::byte{9}), got(4 << 20);
  Must(tier->Write(Bytes{1000}, data));
  failing = "write";
  ExpectSays(tier->Write(MiB(6), other), StatusCode::kIo,
             {"writing bytes 6291456 to 10485760 of the spill file in " + scratch.path(), "it is gone"});
  failing = "read";
  calls = 0;
  ExpectSays(tier->Read(Bytes{1000}, got), StatusCode::kIo,
             {"reading bytes 1000 to 4195304 of the spill file in " + scratch.path(), "it is gone"});
  Must(tier->Read(Bytes{1000}, got));
  EXPECT_TRUE(got == data);
  Must(tier->Write(MiB(6), other));
  Must(tier->Read(MiB(6), got));
  EXPECT_TRUE(got == other);
}

}  // namespace
}  // namespace temper::disk_faults_test
