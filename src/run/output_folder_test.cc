#include "run/output_folder.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "base/faulty_env.h"
#include "base/scratch_folder.h"

namespace temper::output_folder_test {
namespace {

// Another run begins and ends after a run checks its output folder and before it has the lock; it leaves `files`.
class Overtaken : public testing::Test {
 protected:
  RunConfig Config() {
    RunConfig config;
    config.model.model = "model";
    config.output.output_dir = out_;
    return config;
  }
  void OthersLeave(std::vector<std::string> files) { files_ = std::move(files); }
  void ExpectUntouched() {
    EXPECT_EQ(PosixEnv().List(out_).value(), files_) << "all of the other run's files and no lock file";
  }
  static void ExpectRefused(const Status& status, const std::string& why,
                            StatusCode code = StatusCode::kInvalidArgument) {
    EXPECT_EQ(status.code(), code);
    EXPECT_NE(status.message().find(why), std::string::npos) << status.message();
  }

  const ScratchFolder folder_;
  const std::string out_ = folder_ / "out";
  std::vector<std::string> files_;  // sorted
  FaultyEnv env_{PosixEnv(), [this](const std::string& operation, const std::string&) {
                   if (operation != "lock") return OkStatus();
                   for (const std::string& name : files_) {
                     TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(PosixEnv(), JoinPath(out_, name), "{}"));
                   }
                   return OkStatus();
                 }};
};

TEST_F(Overtaken, ARunIsRefusedIfTheFolderWasEmptyBefore) {
  ASSERT_TRUE(PosixEnv().CreateFolders(out_).ok());
  OthersLeave({"adapter_model.safetensors", "metrics.jsonl", "run.yaml"});
  ExpectRefused(OutputFolder::Claim(env_, Config(), "").status(), "holds an earlier run");
  ExpectUntouched();
}

TEST_F(Overtaken, OverwriteStillRequiresATraceOfARun) {
  ASSERT_TRUE(PosixEnv().CreateFolders(out_).ok());
  OthersLeave({"model.safetensors"});
  RunConfig config = Config();
  config.output.overwrite = true;
  ExpectRefused(OutputFolder::Claim(env_, config, "").status(), "which is not from a run of Temper");
  ExpectUntouched();
}

TEST_F(Overtaken, ARunIsRefusedIfTheFolderWasMissingBefore) {
  OthersLeave({"metrics.jsonl", "run.yaml"});
  {
    auto folder = OutputFolder::Claim(env_, Config(), "");
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    ExpectRefused(folder->Prepare(Bytes{}), "holds an earlier run");
  }
  ExpectUntouched();
}

// It has already decided to start from the beginning.
TEST_F(Overtaken, AResumedRunIsRefusedIfTheFolderWasMissingBefore) {
  OthersLeave({"metrics.jsonl", "run.yaml"});
  RunConfig config = Config();
  config.output.resume = "";
  {
    auto folder = OutputFolder::Claim(env_, config, "");
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    EXPECT_FALSE(folder->resume_from().has_value());
    ExpectRefused(folder->Prepare(Bytes{}), "another run wrote into", StatusCode::kInUse);
  }
  ExpectUntouched();
}

TEST_F(Overtaken, ARunIsAcceptedIfNoOtherCame) {
  auto folder = OutputFolder::Claim(env_, Config(), "");
  ASSERT_TRUE(folder.ok()) << folder.status().message();
  EXPECT_TRUE(folder->Prepare(Bytes{}).ok());
  EXPECT_TRUE(folder->Begin(0).ok());
}

// A machine whose folder of this name is its own may have the lock file of an earlier run.
TEST(OutputFolders, AreSeenByOtherRanksOnlyWithTheMarkOfThisStart) {
  const ScratchFolder scratch;
  RunConfig config;
  config.model.model = "model";
  std::vector<std::string> marks;
  for (const char* name : {"shared", "own", "shared"}) {
    config.output.output_dir = scratch / name;
    auto folder = OutputFolder::Claim(PosixEnv(), config, "");
    ASSERT_TRUE(folder.ok()) << folder.status().message();
    ASSERT_TRUE(folder->Prepare(Bytes{}).ok());
    const auto mark = folder->Mark();
    ASSERT_TRUE(mark.ok()) << mark.status().message();
    EXPECT_TRUE(OutputFolder::CheckSeen(PosixEnv(), scratch / name, *mark).ok());
    EXPECT_FALSE(OutputFolder::Claim(PosixEnv(), config, "").ok()) << "the lock holds";
    marks.push_back(*mark);
    ASSERT_TRUE(folder->Begin(0).ok());
  }
  EXPECT_TRUE(OutputFolder::CheckSeen(PosixEnv(), scratch / "shared", marks[2]).ok());
  for (const char* name : {"own", "none"}) {
    const Status seen = OutputFolder::CheckSeen(PosixEnv(), scratch / name, marks[2]);
    EXPECT_NE(seen.message().find("this machine does not see the folder"), std::string::npos) << seen.message();
  }
  EXPECT_FALSE(OutputFolder::CheckSeen(PosixEnv(), scratch / "shared", marks[0]).ok());
}

}  // namespace
}  // namespace temper::output_folder_test
