#include "compile/pipeline/schedule.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <random>
#include <set>
#include <tuple>

#include "compile/pipeline/calls.h"

namespace temper::schedule_test {
namespace {

constexpr PipelineKind kKinds[] = {PipelineKind::kOneForwardOneBackward, PipelineKind::kInterleaved,
                                   PipelineKind::kZeroBubble, PipelineKind::kGpipe};

PipelineSchedule Make(PipelineKind kind, int stages, int chunks, int micro_batches) {
  auto schedule = MakePipelineSchedule(kind, stages, chunks, micro_batches);
  TEMPER_CHECK(schedule.ok()) << schedule.status().message();
  return *schedule;
}
SimulatedPipeline Simulated(const PipelineSchedule& schedule, const WorkTimes& times = {}) {
  auto simulated = SimulatePipeline(schedule, times);
  TEMPER_CHECK(simulated.ok()) << simulated.status().message();
  return *simulated;
}
std::string ErrorOf(const PipelineSchedule& schedule) {
  const auto simulated = SimulatePipeline(schedule, {});
  return simulated.ok() ? "" : simulated.status().message();
}

// All schedules of some pipelines.
template <class Body>
void ForEverySchedule(const Body& body) {
  for (const PipelineKind kind : kKinds) {
    const bool interleaved = kind == PipelineKind::kInterleaved;
    for (int stages = 2; stages <= 5; ++stages) {
      for (int micro_batches = 1; micro_batches <= 11; ++micro_batches) {
        for (int chunks = interleaved ? 2 : 1; chunks <= (interleaved ? 3 : 1); ++chunks) {
          const int m = interleaved ? micro_batches * stages : micro_batches;
          SCOPED_TRACE(fmt::format("{}: {} stages x {} chunks, {} micro-batches", ToString(kind), stages, chunks, m));
          body(Make(kind, stages, chunks, m));
        }
      }
    }
  }
}

TEST(PipelineSchedule, EveryScheduleDoesAllWorkWithoutDeadlock) {
  ForEverySchedule([](const PipelineSchedule& s) { EXPECT_EQ(ErrorOf(s), ""); });
}

TEST(PipelineSchedule, BubblesAreThoseOfTheLiterature) {
  for (const int p : {2, 4, 8}) {
    for (const int m : {8, 16, 64}) {
      const double one = Simulated(Make(PipelineKind::kOneForwardOneBackward, p, 1, m)).bubble;
      EXPECT_NEAR(one, (p - 1.0) / (m + p - 1), 1e-12) << p << " " << m;
      EXPECT_NEAR(Simulated(Make(PipelineKind::kGpipe, p, 1, m)).bubble, one, 1e-12);
      EXPECT_NEAR(Simulated(Make(PipelineKind::kInterleaved, p, 2, m)).bubble, (p - 1.0) / (2 * m + p - 1), 1e-12);
      // ZB-H1: p - 1 times F + B - W = 1 instead of F + B + W = 3.
      EXPECT_NEAR(Simulated(Make(PipelineKind::kZeroBubble, p, 1, m)).bubble, (p - 1.0) / (3 * m + p - 1), 1e-12)
          << p << m;
    }
  }
}

TEST(PipelineSchedule, KeepsAsManyMicroBatchesAsAreInFlight) {
  const int p = 4, m = 12;
  const auto kept = [](const PipelineSchedule& s, int stage) {
    const StageCalls calls = CallsOfStage(s, Simulated(s), stage);
    return calls.slots[static_cast<size_t>(stage)][static_cast<size_t>(SlotKind::kKept)];
  };
  for (int stage = 0; stage < p; ++stage) {
    EXPECT_EQ(kept(Make(PipelineKind::kOneForwardOneBackward, p, 1, m), stage), p - stage);
    EXPECT_EQ(kept(Make(PipelineKind::kGpipe, p, 1, m), stage), m);
    EXPECT_LE(kept(Make(PipelineKind::kZeroBubble, p, 1, m), stage), p) << "no more than the first stage of 1F1B";
  }
  EXPECT_EQ(kept(Make(PipelineKind::kOneForwardOneBackward, p, 1, 2), 0), 2) << "not more than there are micro-batches";
}

// No slot belongs to two micro-batches at once, and each task uses the slots that its micro-batch took before.
TEST(PipelineSchedule, ASlotBelongsToOneMicroBatchAtATime) {
  ForEverySchedule([](const PipelineSchedule& s) {
    const SimulatedPipeline simulated = Simulated(s);
    for (int stage = 0; stage < s.stages; ++stage) {
      std::map<std::tuple<int, int, int>, int> holder;  // (chunk, kind, slot) -> micro-batch
      const StageCalls calls = CallsOfStage(s, simulated, stage);
      for (const PipelineCall& call : calls.calls) {
        const auto is = [&](SlotKind kind) {
          const auto k = static_cast<size_t>(kind);
          EXPECT_LT(call.slots[k], calls.slots[static_cast<size_t>(call.chunk)][k]);
          return std::make_tuple(call.chunk, static_cast<int>(kind), call.slots[k]);
        };
        const bool first = call.chunk == 0, last = call.chunk + 1 == s.chunks();
        switch (call.part) {
          case PartKind::kReceiveForward:
            EXPECT_TRUE(holder.try_emplace(is(SlotKind::kReceivedForward), call.micro_batch).second);
            break;
          case PartKind::kReceiveBackward:
            EXPECT_TRUE(holder.try_emplace(is(SlotKind::kReceivedBackward), call.micro_batch).second);
            break;
          case PartKind::kForward:
            EXPECT_TRUE(holder.try_emplace(is(SlotKind::kKept), call.micro_batch).second);
            if (!first) {
              EXPECT_EQ(holder.at(is(SlotKind::kReceivedForward)), call.micro_batch);
            }
            break;
          case PartKind::kBackward:
          case PartKind::kWeights:
            EXPECT_EQ(holder.at(is(SlotKind::kKept)), call.micro_batch);
            if (!first) {
              EXPECT_EQ(holder.at(is(SlotKind::kReceivedForward)), call.micro_batch);
            }
            if (!last) {
              EXPECT_EQ(holder.at(is(SlotKind::kReceivedBackward)), call.micro_batch);
            }
            if (call.part == PartKind::kBackward && s.splits_backward) break;
            holder.erase(is(SlotKind::kKept));
            if (!first) holder.erase(is(SlotKind::kReceivedForward));
            if (!last) holder.erase(is(SlotKind::kReceivedBackward));
            break;
        }
      }
      EXPECT_TRUE(holder.empty());
    }
  });
}

// Simulates running ranks: receives are issued, sends are issued after the work that makes them, and a transfer takes
// place when it is next at both ends. All ranks finish, independent of their speed.
TEST(PipelineSchedule, NoTransferWaitsForALaterOne) {
  using Transfer = std::tuple<int, int, int>;  // from chunk, to chunk, micro-batch
  std::mt19937 random(1);
  ForEverySchedule([&](const PipelineSchedule& s) {
    const SimulatedPipeline simulated = Simulated(s);
    struct Rank {
      std::vector<PipelineCall> calls;
      size_t next = 0;
      std::deque<Transfer> sends, receives;
    };
    std::vector<Rank> ranks(static_cast<size_t>(s.stages));
    for (int stage = 0; stage < s.stages; ++stage) {
      ranks[static_cast<size_t>(stage)].calls = CallsOfStage(s, simulated, stage).calls;
    }
    std::set<Transfer> done;
    const auto step = [&](Rank& rank) {
      if (rank.next == rank.calls.size()) return false;
      const PipelineCall& call = rank.calls[rank.next];
      const int c = call.chunk, m = call.micro_batch;
      const bool first = c == 0, last = c + 1 == s.chunks();
      switch (call.part) {
        case PartKind::kReceiveForward:
          rank.receives.push_back({c - 1, c, m});
          break;
        case PartKind::kReceiveBackward:
          rank.receives.push_back({c + 1, c, m});
          break;
        case PartKind::kForward:
          if (!first && !done.contains({c - 1, c, m})) return false;
          if (!last) rank.sends.push_back({c, c + 1, m});
          break;
        case PartKind::kBackward:
          if (!last && !done.contains({c + 1, c, m})) return false;
          if (!first) rank.sends.push_back({c, c - 1, m});
          break;
        case PartKind::kWeights:
          break;
      }
      ++rank.next;
      return true;
    };
    const auto transfer = [&](Rank& from) {
      if (from.sends.empty()) return false;
      Rank& to = ranks[static_cast<size_t>(s.StageOf(std::get<1>(from.sends.front())))];
      if (to.receives.empty() || to.receives.front() != from.sends.front()) return false;
      done.insert(from.sends.front());
      from.sends.pop_front();
      to.receives.pop_front();
      return true;
    };
    for (bool progress = true; progress;) {
      progress = false;
      std::vector<size_t> order(ranks.size());
      for (size_t i = 0; i < order.size(); ++i) order[i] = i;
      std::shuffle(order.begin(), order.end(), random);
      for (const size_t i : order) progress |= (random() % 2 == 0 ? step(ranks[i]) : transfer(ranks[i]));
      for (const size_t i : order) progress = progress || step(ranks[i]) || transfer(ranks[i]);
    }
    for (const Rank& rank : ranks) {
      EXPECT_EQ(rank.next, rank.calls.size());
      EXPECT_TRUE(rank.sends.empty() && rank.receives.empty());
    }
  });
}

TEST(PipelineSchedule, TheCheckerRefusesABackwardBeforeItsForward) {
  PipelineSchedule s = Make(PipelineKind::kOneForwardOneBackward, 2, 1, 4);
  // Stage 1: F0 B0 F1 B1 ...
  std::swap(s.tasks[1][0], s.tasks[1][1]);
  EXPECT_NE(ErrorOf(s).find("stage 0 waits forever before B(chunk 0, micro-batch 0)"), std::string::npos) << ErrorOf(s);
}

TEST(PipelineSchedule, TheCheckerRefusesStagesThatWaitForEachOther) {
  // Stage 0 needs the gradient of micro-batch 0 before it sends micro-batch 1; stage 1 needs both first.
  PipelineSchedule s{.stages = 2, .micro_batches = 2};
  const auto f = [](int chunk, int m) { return PipelineTask{Work::kForward, chunk, m}; };
  const auto b = [](int chunk, int m) { return PipelineTask{Work::kBackward, chunk, m}; };
  s.tasks = {{f(0, 0), b(0, 0), f(0, 1), b(0, 1)}, {f(1, 0), f(1, 1), b(1, 0), b(1, 1)}};
  EXPECT_NE(ErrorOf(s).find("waits forever"), std::string::npos);
  s.tasks[1] = {f(1, 0), b(1, 0), f(1, 1), b(1, 1)};
  EXPECT_EQ(ErrorOf(s), "");
}

TEST(PipelineSchedule, TheCheckerRefusesMissingDuplicatedMisplacedAndUnorderedWork) {
  const PipelineSchedule good = Make(PipelineKind::kZeroBubble, 3, 1, 4);
  PipelineSchedule s = good;
  s.tasks[1].pop_back();
  EXPECT_NE(ErrorOf(s).find("stage 1 has 11 tasks of 12"), std::string::npos) << ErrorOf(s);
  s = good;
  s.tasks[2].push_back(s.tasks[2].back());
  EXPECT_NE(ErrorOf(s).find("is duplicated or out of order"), std::string::npos);
  s = good;
  s.tasks[0][0].chunk = 1;
  EXPECT_NE(ErrorOf(s).find("belongs to another stage"), std::string::npos);
  s = good;
  std::swap(s.tasks[0][0].micro_batch, s.tasks[0][1].micro_batch);
  EXPECT_NE(ErrorOf(s).find("out of order"), std::string::npos)
      << "the first micro-batch writes the gradients that others add to";
  s = good;
  s.splits_backward = false;
  EXPECT_NE(ErrorOf(s).find("is not work of this schedule"), std::string::npos);
}

TEST(PipelineSchedule, InterleavingRefusesMicroBatchesThatDoNotDivideAmongStages) {
  const auto schedule = MakePipelineSchedule(PipelineKind::kInterleaved, 4, 2, 6);
  ASSERT_FALSE(schedule.ok());
  EXPECT_EQ(schedule.status().message(),
            "mesh.pp_schedule interleaved: 6 micro-batches do not divide among 4 stages; 4 or 8 do");
}

TEST(PipelineSchedule, EvaluationRunsForwardOnly) {
  const PipelineSchedule s = MakeForwardSchedule(3, 2, 1);
  const SimulatedPipeline simulated = Simulated(s);
  ASSERT_EQ(simulated.transfers.size(), 5u);
  for (const PipelineTransfer& t : simulated.transfers) EXPECT_EQ(t.to_chunk, t.from_chunk + 1);
  EXPECT_EQ(CallsOfStage(s, simulated, 0).calls.size(), 3u) << "two forwards and a receive";
}

}  // namespace
}  // namespace temper::schedule_test
