#include "runtime/trace.h"
#include "graph/named_ops.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/scratch_folder.h"
#include "format/json.h"

namespace temper::trace_test {
namespace {

TEST(Trace, WritesJsonThatParsesWithTimesInMicroseconds) {
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  const auto start = std::chrono::steady_clock::now();
  Trace trace(3);
  for (int i = 0; i < 5; ++i) {
    const auto begin = start + std::chrono::microseconds(100 * i);
    trace.Record({Op::kLinear,
                  i == 1 ? Phase::kBackward : Phase::kForward,
                  i,
                  7,
                  begin,
                  begin + std::chrono::microseconds(50),
                  {1024},
                  {5e5}});
  }
  ASSERT_TRUE(WriteChrome(PosixEnv(), path, {&trace, 1}).ok());
  const auto json = ReadJsonFile(PosixEnv(), path);
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& events = (*json)["traceEvents"];
  ASSERT_EQ(events.size(), 3u);
  EXPECT_EQ((*json)["dropped_events"], 2);
  EXPECT_EQ(events[1]["name"], "linear");
  EXPECT_EQ(events[1]["cat"], "backward");
  EXPECT_EQ(events[1]["ph"], "X");
  EXPECT_NEAR(events[2]["ts"].get<double>(), 200, 1e-3);
  EXPECT_NEAR(events[2]["dur"].get<double>(), 50, 1e-3);
  EXPECT_EQ(events[0]["args"]["micro_batch"], 7);
  EXPECT_EQ(events[0]["args"]["bytes"], 1024);
  EXPECT_NEAR(events[0]["args"]["gflops_per_second"].get<double>(), 10, 0.1) << "5e5 in 50 us";
}

// A fetch that began before a kernel is recorded after it, by whoever waits for it.
TEST(Trace, TimesCountFromWhateverBeganFirst) {
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  const auto start = std::chrono::steady_clock::now();
  const auto at = [&](int microseconds) { return start + std::chrono::microseconds(microseconds); };
  Trace trace(2);
  trace.Record({Op::kLinear, Phase::kForward, 0, 0, at(30), at(40), {}, {}});
  trace.Record({Op::kFetch, Phase::kForward, 0, 0, at(0), at(35), {}, {}, "read from disk"});
  ASSERT_TRUE(WriteChrome(PosixEnv(), path, {&trace, 1}).ok());
  const auto json = ReadJsonFile(PosixEnv(), path);
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& events = (*json)["traceEvents"];
  EXPECT_NEAR(events[0]["ts"].get<double>(), 30, 1e-3);
  EXPECT_NEAR(events[1]["ts"].get<double>(), 0, 1e-3);
  EXPECT_EQ(events[0]["tid"], "compute");
  EXPECT_EQ(events[1]["tid"], "read from disk");
}

TEST(Trace, ProgramsAreTheProcessesOfOneFile) {
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  const auto now = std::chrono::steady_clock::now();
  const auto later = now + std::chrono::microseconds(10);
  std::vector<Trace> traces;
  traces.emplace_back(1);
  traces.emplace_back(1, "eval");
  traces[0].Record({Op::kRelu, Phase::kForward, 0, 0, later, later, {}, {}});
  for (int i = 0; i < 2; ++i) traces[1].Record({Op::kRelu, Phase::kForward, 0, 0, now, now, {}, {}});
  ASSERT_TRUE(WriteChrome(PosixEnv(), path, traces).ok());
  const auto json = ReadJsonFile(PosixEnv(), path);
  ASSERT_TRUE(json.ok()) << json.status().message();
  const Json& events = (*json)["traceEvents"];
  EXPECT_EQ(events[0]["pid"], "train");
  EXPECT_NEAR(events[0]["ts"].get<double>(), 10, 1e-3);
  EXPECT_EQ(events[1]["pid"], "eval");
  EXPECT_EQ((*json)["dropped_events"], 0);
  EXPECT_EQ((*json)["dropped_events_beside_steps"], 1);
}

TEST(Trace, AnEmptyTraceAndEventsWithoutLengthParseToo) {
  const ScratchFolder folder;
  const std::string path = folder / "trace.json";
  Trace trace(1);
  ASSERT_TRUE(WriteChrome(PosixEnv(), path, {&trace, 1}).ok());
  EXPECT_TRUE(ReadJsonFile(PosixEnv(), path).ok());
  const auto now = std::chrono::steady_clock::now();
  trace.Record({Op::kRelu, Phase::kUpdate, kBlockAfter, 0, now, now, {}, {1}});
  ASSERT_TRUE(WriteChrome(PosixEnv(), path, {&trace, 1}).ok());
  const auto json = ReadJsonFile(PosixEnv(), path);
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ((*json)["traceEvents"][0]["args"]["block"], kBlockAfter);
}

}  // namespace
}  // namespace temper::trace_test
