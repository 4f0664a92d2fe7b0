#include "train/metrics.h"

#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "base/faulty_env.h"
#include "base/scratch_folder.h"
#include "format/json.h"

namespace temper::metrics_test {
namespace {

std::string FreshPath(const std::string& name) {
  static const ScratchFolder folder;
  EXPECT_TRUE(PosixEnv().RemoveTree(folder / name).ok());
  return folder / name;
}

std::string Read(const std::string& path) {
  const auto text = ReadTextFile(PosixEnv(), path);
  EXPECT_TRUE(text.ok()) << text.status().message();
  return text.ok() ? *text : "";
}

TrainingRow RowOf(int64_t step) {
  TrainingRow row;
  row.step = step;
  row.epoch = static_cast<double>(step) / 3;
  row.loss = 1.0 / static_cast<double>(step);
  row.learning_rate = 0x1.23456789abcdep-13;
  row.tokens = step * 4096;
  return row;
}

TEST(Metrics, RowsHaveThePromisedKeysInOrderAtFullPrecision) {
  TrainingRow row = RowOf(7);
  row.grad_norm = 0.1 + 0.2;
  row.tokens_per_second = 1e21;
  row.mfu = 0.7071067811865476;
  row.device_peak_bytes = INT64_MAX;
  row.seconds = 5e-324;
  const auto json = ParseOrderedJson(ToJsonLine(row), "row");
  ASSERT_TRUE(json.ok()) << json.status().message();
  std::vector<std::string> keys;
  for (const auto& item : json->items()) keys.push_back(item.key());
  EXPECT_EQ(keys, (std::vector<std::string>{"step", "epoch", "loss", "grad_norm", "learning_rate", "tokens",
                                            "tokens_per_second", "mfu", "device_peak_bytes", "seconds"}));
  EXPECT_EQ((*json)["step"], 7);
  EXPECT_EQ((*json)["epoch"].get<double>(), row.epoch);
  EXPECT_EQ((*json)["loss"].get<double>(), row.loss);
  EXPECT_EQ((*json)["grad_norm"].get<double>(), row.grad_norm);
  EXPECT_EQ((*json)["learning_rate"].get<double>(), row.learning_rate);
  EXPECT_EQ((*json)["tokens_per_second"].get<double>(), 1e21);
  EXPECT_EQ((*json)["mfu"].get<double>(), *row.mfu);
  EXPECT_EQ((*json)["device_peak_bytes"].get<int64_t>(), INT64_MAX);
}

TEST(Metrics, ARowOfSeveralRanksHasTheTimeOfEach) {
  TrainingRow row = RowOf(7);
  row.ranks = {{.kernels = 0.75, .collectives = 0.125, .waiting = 0.125, .beside = 0.5, .resident_peak_bytes = 1 << 20},
               {.kernels = 1}};
  const auto json = ParseJson(ToJsonLine(row), "row");
  ASSERT_TRUE(json.ok()) << json.status().message();
  ASSERT_EQ((*json)["ranks"].size(), 2u);
  EXPECT_EQ((*json)["ranks"][0]["kernels"], 0.75);
  EXPECT_EQ((*json)["ranks"][0]["collectives"], 0.125);
  EXPECT_EQ((*json)["ranks"][0]["waiting"], 0.125);
  EXPECT_EQ((*json)["ranks"][0]["beside"], 0.5);
  EXPECT_EQ((*json)["ranks"][0]["resident_peak_bytes"], 1 << 20);
  EXPECT_EQ((*json)["ranks"][1]["kernels"], 1);
}

TEST(Metrics, ValuesThatAreNotNumbersAreNull) {
  TrainingRow row;
  row.loss = NAN;
  row.grad_norm = INFINITY;
  const auto json = ParseJson(ToJsonLine(row), "row");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_TRUE((*json)["loss"].is_null());
  EXPECT_TRUE((*json)["grad_norm"].is_null());
  EXPECT_TRUE((*json)["mfu"].is_null());
}

TEST(Metrics, ARowIsReadableAsSoonAsItIsWritten) {
  const std::string path = FreshPath("metrics_live.jsonl");
  auto log = MetricsLog::Open(PosixEnv(), path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write(RowOf(1)).ok());
  EXPECT_EQ(Read(path), ToJsonLine(RowOf(1)) + "\n");
  ASSERT_TRUE((*log)->Write(EvaluationRow{.step = 1, .epoch = 0.5, .eval_loss = 2.5, .eval_tokens = 10}).ok());
  EXPECT_EQ(Read(path),
            ToJsonLine(RowOf(1)) +
                "\n{\"step\": 1, \"epoch\": 0.5, \"eval_loss\": 2.5, \"eval_tokens\": 10, \"eval_seconds\": 0}\n");
  EXPECT_TRUE((*log)->Sync().ok());
}

TEST(Metrics, ResumingKeepsTheRowsUpToItsStep) {
  const std::string path = FreshPath("metrics_resume.jsonl");
  std::string upto3;
  {
    auto log = MetricsLog::Open(PosixEnv(), path);
    ASSERT_TRUE(log.ok());
    for (int step = 1; step <= 5; ++step) {
      ASSERT_TRUE((*log)->Write(RowOf(step)).ok());
      ASSERT_TRUE((*log)->Write(EvaluationRow{.step = step}).ok());
      if (step == 3) upto3 = Read(path);
    }
  }
  ASSERT_TRUE(TruncateMetrics(PosixEnv(), path, 3, true).ok());
  EXPECT_EQ(Read(path), upto3);
  auto log = MetricsLog::Open(PosixEnv(), path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write(RowOf(4)).ok());
  EXPECT_EQ(Read(path), upto3 + ToJsonLine(RowOf(4)) + "\n");
  // A checkpoint of step 3 that was saved before its evaluation: that row will be written again.
  ASSERT_TRUE(TruncateMetrics(PosixEnv(), path, 3, false).ok());
  EXPECT_EQ(Read(path), upto3.substr(0, upto3.rfind("{\"step\": 3, \"epoch\": 0, \"eval_loss\"")));
  ASSERT_TRUE(TruncateMetrics(PosixEnv(), path, 0, true).ok());
  EXPECT_EQ(Read(path), "");
}

TEST(Metrics, ATruncatedLastLineIsDropped) {
  const std::string path = FreshPath("metrics_torn.jsonl");
  const std::string first = ToJsonLine(RowOf(1)) + "\n", second = ToJsonLine(RowOf(2)) + "\n";
  for (size_t length = 0; length <= second.size(); length += length + 9 < second.size() ? 9 : 1) {
    ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, first + second.substr(0, length)).ok());
    ASSERT_TRUE(TruncateMetrics(PosixEnv(), path, 2, true).ok());
    // If only the line end is missing, the row is complete.
    EXPECT_EQ(Read(path), length + 1 >= second.size() ? first + second : first) << length;
  }
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, first + std::string(100, '\0')).ok());
  ASSERT_TRUE(TruncateMetrics(PosixEnv(), path, 2, true).ok());
  EXPECT_EQ(Read(path), first) << "zeros, as a power failure leaves them";
}

TEST(Metrics, TruncatingRefusesAndKeepsUnknownLines) {
  const std::string path = FreshPath("metrics_foreign.jsonl");
  const std::string text = ToJsonLine(RowOf(1)) + "\nmy notes\n" + ToJsonLine(RowOf(2)) + "\n";
  ASSERT_TRUE(WriteTextFileAtomically(PosixEnv(), path, text).ok());
  const Status status = TruncateMetrics(PosixEnv(), path, 1, true);
  EXPECT_NE(status.message().find("line 2"), std::string::npos) << status.message();
  EXPECT_EQ(Read(path), text);
  EXPECT_TRUE(TruncateMetrics(PosixEnv(), FreshPath("metrics_missing.jsonl"), 1, true).ok());
}

TEST(Metrics, AFailedWriteLeavesNoPartOfARow) {
  const std::string path = FreshPath("metrics_full_disk.jsonl");
  bool full = false, stuck = false;
  FaultyEnv env(PosixEnv(), [&](const std::string& operation, const std::string&) {
    if (full && operation == "append") return IoError("disk full");
    if (stuck && operation == "truncate") return IoError("disk gone");
    return OkStatus();
  });
  auto log = MetricsLog::Open(env, path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write(RowOf(1)).ok());
  const std::string whole = Read(path);
  full = true;
  EXPECT_FALSE((*log)->Write(RowOf(2)).ok());
  EXPECT_EQ(Read(path), whole);
  stuck = true;  // the part cannot even be removed
  EXPECT_FALSE((*log)->Write(RowOf(2)).ok());
  EXPECT_NE(Read(path), whole);
  full = stuck = false;
  ASSERT_TRUE((*log)->Write(RowOf(3)).ok());
  EXPECT_EQ(Read(path), whole + ToJsonLine(RowOf(3)) + "\n");
}

TEST(Metrics, LossHistoryHasBothCurves) {
  const std::string path = FreshPath("metrics_history.jsonl");
  auto log = MetricsLog::Open(PosixEnv(), path);
  ASSERT_TRUE(log.ok());
  ASSERT_TRUE((*log)->Write(RowOf(1)).ok());
  ASSERT_TRUE((*log)->Write(EvaluationRow{.step = 1, .eval_loss = 3}).ok());
  ASSERT_TRUE((*log)->Write(RowOf(2)).ok());
  const auto history = ReadLossHistory(PosixEnv(), path);
  ASSERT_TRUE(history.ok());
  EXPECT_EQ(history->training, (std::vector<std::pair<int64_t, double>>{{1, 1.0}, {2, 0.5}}));
  EXPECT_EQ(history->evaluation, (std::vector<std::pair<int64_t, double>>{{1, 3.0}}));
}

}  // namespace
}  // namespace temper::metrics_test
