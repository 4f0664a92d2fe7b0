#include "disk/io_team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/block_file.h"
#include "base/no_more_threads.h"

namespace temper::io_team_test {
namespace {

TEST(IoTeam, DoesEveryChunkOnceWithABufferThatNoOtherThreadUses) {
  for (const int width : {1, 2, 5}) {
    IoTeam team(width, Bytes{BlockFile::kBlock});
    for (const int64_t chunks : {1, 2, 3, 100, 1000}) {
      std::vector<std::atomic<int>> done(static_cast<size_t>(chunks));
      std::atomic<int64_t> spoilt = 0;
      const Status s = team.Run(chunks, [&](int64_t chunk, std::span<std::byte> buffer) {
        EXPECT_EQ(buffer.size(), static_cast<size_t>(BlockFile::kBlock));
        EXPECT_EQ(reinterpret_cast<uintptr_t>(buffer.data()) % BlockFile::kBlock, 0u);
        const auto mark = static_cast<std::byte>(chunk);
        std::fill(buffer.begin(), buffer.end(), mark);
        for (const std::byte b : buffer) spoilt += b != mark;
        ++done[static_cast<size_t>(chunk)];
        return OkStatus();
      });
      EXPECT_TRUE(s.ok());
      for (const auto& d : done) EXPECT_EQ(d, 1);
      EXPECT_EQ(spoilt, 0);
    }
  }
}

// Each chunk waits until all have begun: fewer threads would wait for ever.
TEST(IoTeam, WorksOnAsManyChunksAtOnceAsItIsWide) {
  constexpr int kWidth = 4;
  IoTeam team(kWidth, Bytes{BlockFile::kBlock});
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  const Status s = team.Run(kWidth, [&](int64_t, std::span<std::byte>) {
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    const bool all = changed.wait_for(lock, std::chrono::seconds(60), [&] { return begun == kWidth; });
    return all ? OkStatus() : IoError("alone");
  });
  EXPECT_TRUE(s.ok()) << s.message();
}

// The last chunk of the first transfer waits for a chunk of the second: a team that drained between them would not end.
TEST(IoTeam, TheNextTransferBeginsBeforeTheLastChunkOfThisOneIsDone) {
  constexpr int kWidth = 4;
  constexpr int64_t kChunks = 10;
  IoTeam team(kWidth, Bytes{BlockFile::kBlock});
  std::mutex mutex;
  std::condition_variable changed;
  bool first_began = false;
  int64_t begun_of_second = 0;
  Status second_done;
  std::thread second([&] {
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return first_began; });
    }
    second_done = team.Run(kChunks, [&](int64_t, std::span<std::byte>) {
      const std::lock_guard lock(mutex);
      ++begun_of_second;
      changed.notify_all();
      return OkStatus();
    });
  });
  const Status first_done = team.Run(kChunks, [&](int64_t chunk, std::span<std::byte>) {
    std::unique_lock lock(mutex);
    first_began = true;
    changed.notify_all();
    if (chunk + 1 < kChunks) return OkStatus();
    const bool joined = changed.wait_for(lock, std::chrono::seconds(60), [&] { return begun_of_second > 0; });
    return joined ? OkStatus() : IoError("the team drained");
  });
  second.join();
  EXPECT_TRUE(first_done.ok()) << first_done.message();
  EXPECT_TRUE(second_done.ok()) << second_done.message();
  EXPECT_EQ(begun_of_second, kChunks);
}

// The member's chunk waits for the second transfer, which gets the caller's buffer or none.
TEST(IoTeam, WhoHasNothingLeftToBeginPassesItsBufferOn) {
  IoTeam team(2, Bytes{BlockFile::kBlock});
  std::mutex mutex;
  std::condition_variable changed;
  int begun = 0;
  bool second_began = false;
  std::thread second;
  const auto caller = std::this_thread::get_id();
  const Status s = team.Run(2, [&](int64_t, std::span<std::byte>) {
    std::unique_lock lock(mutex);
    ++begun;
    changed.notify_all();
    if (!changed.wait_for(lock, std::chrono::seconds(60), [&] { return begun == 2; })) return IoError("alone");
    if (std::this_thread::get_id() != caller) {
      const bool passed = changed.wait_for(lock, std::chrono::seconds(60), [&] { return second_began; });
      return passed ? OkStatus() : IoError("the buffer was kept");
    }
    second = std::thread([&] {
      const Status also = team.Run(1, [&](int64_t, std::span<std::byte>) {
        const std::lock_guard own(mutex);
        second_began = true;
        changed.notify_all();
        return OkStatus();
      });
      EXPECT_TRUE(also.ok());
    });
    lock.unlock();
    std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the second call to find no buffer
    return OkStatus();
  });
  second.join();
  EXPECT_TRUE(s.ok()) << s.message();
}

TEST(IoTeam, WhoCallsFirstIsServedFirst) {
  IoTeam team(1, Bytes{BlockFile::kBlock});
  std::vector<int> order;
  std::thread second;
  const Status s = team.Run(5, [&](int64_t chunk, std::span<std::byte>) {
    if (chunk == 0) {
      second = std::thread([&] {
        const Status also = team.Run(5, [&](int64_t, std::span<std::byte>) {
          order.push_back(2);
          return OkStatus();
        });
        EXPECT_TRUE(also.ok());
      });
      std::this_thread::sleep_for(std::chrono::milliseconds(20));  // for the second call to come in between
    }
    order.push_back(1);
    return OkStatus();
  });
  second.join();
  EXPECT_TRUE(s.ok());
  EXPECT_EQ(order, (std::vector<int>{1, 1, 1, 1, 1, 2, 2, 2, 2, 2}));
}

TEST(IoTeam, ManyCallersGetTheirOwnChunksDoneWithBuffersOfTheirOwn) {
  for (const int width : {1, 3}) {
    IoTeam team(width, Bytes{BlockFile::kBlock});
    std::atomic<int> in_flight = 0, most = 0;
    const auto call = [&](int me) {
      for (int i = 0; i < 200; ++i) {
        const int64_t chunks = 1 + (i + me) % 5;
        std::vector<std::atomic<int>> done(static_cast<size_t>(chunks));
        const bool fails = i % 7 == me;
        const Status s = team.Run(chunks, [&](int64_t chunk, std::span<std::byte> buffer) {
          const int now = ++in_flight;
          for (int seen = most; now > seen && !most.compare_exchange_weak(seen, now);) {
          }
          std::fill(buffer.begin(), buffer.end(), static_cast<std::byte>(me));
          std::this_thread::yield();
          const bool own = std::all_of(buffer.begin(), buffer.end(), [&](std::byte b) { return b == std::byte(me); });
          EXPECT_TRUE(own);
          ++done[static_cast<size_t>(chunk)];
          --in_flight;
          return fails ? IoError("caller " + std::to_string(me)) : OkStatus();
        });
        EXPECT_EQ(s.message(), fails ? "caller " + std::to_string(me) : "");
        for (const auto& d : done) EXPECT_LE(d, 1);
        if (fails) continue;
        for (const auto& d : done) EXPECT_EQ(d, 1);
      }
    };
    std::vector<std::thread> others;
    for (const int me : {1, 2, 3}) others.emplace_back(call, me);
    call(0);
    for (std::thread& other : others) other.join();
    EXPECT_LE(most, width);
  }
}

TEST(IoTeam, AnErrorEndsTheRunAndNotTheNext) {
  IoTeam team(3, Bytes{BlockFile::kBlock});
  std::atomic<int64_t> begun = 0;
  const auto work = [&](int64_t chunk, std::span<std::byte>) {
    ++begun;
    return chunk == 5 ? IoError("chunk 5") : OkStatus();
  };
  const Status failed = team.Run(1'000'000, work);
  EXPECT_EQ(failed.message(), "chunk 5");
  EXPECT_LT(begun, 1'000'000);
  EXPECT_EQ(team.Run(1, [](int64_t, std::span<std::byte>) { return IoError("only"); }).message(), "only");
  begun = 0;
  EXPECT_TRUE(team.Run(5, work).ok());
  EXPECT_EQ(begun, 5);
}

TEST(IoTeam, TheCallerDoesAllWhereThereAreNoMoreThreads) {
  const NoMoreThreads none;
  IoTeam team(3, Bytes{BlockFile::kBlock});
  int64_t done = 0;
  const auto caller = std::this_thread::get_id();
  EXPECT_TRUE(team.Run(10,
                       [&](int64_t, std::span<std::byte>) {
                         EXPECT_EQ(std::this_thread::get_id(), caller);
                         ++done;
                         return OkStatus();
                       })
                  .ok());
  EXPECT_EQ(done, 10);
}

}  // namespace
}  // namespace temper::io_team_test
