#include "disk/io_team.h"

#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <thread>
#include <vector>

#include "base/block_file.h"

namespace temper {
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

TEST(IoTeam, CallersWaitForEachOther) {
  IoTeam team(3, Bytes{BlockFile::kBlock});
  std::atomic<int> at_work[2] = {0, 0};
  std::atomic<int64_t> mixed = 0;
  const auto call = [&](int me) {
    for (int i = 0; i < 200; ++i) {
      const int64_t chunks = 1 + i % 5;
      std::atomic<int64_t> done = 0;
      const Status s = team.Run(chunks, [&](int64_t, std::span<std::byte>) {
        ++at_work[me];
        mixed += at_work[1 - me];
        std::this_thread::yield();
        --at_work[me];
        ++done;
        return OkStatus();
      });
      EXPECT_TRUE(s.ok());
      EXPECT_EQ(done, chunks);
    }
  };
  std::thread other(call, 1);
  call(0);
  other.join();
  EXPECT_EQ(mixed, 0);
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

}  // namespace
}  // namespace temper
