#include "runtime/arena.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

#include "base/machine_memory.h"

namespace temper::arena_test {
namespace {

TEST(Arena, IsZeroedAlignedAndInMemory) {
  for (const int64_t size : {int64_t{0}, int64_t{1}, int64_t{4096}, (int64_t{2} << 20) - 1, int64_t{5} << 20}) {
    const auto arena = Arena::Create({size});
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    EXPECT_EQ((*arena)->size().v, size);
    std::byte* const begin = (*arena)->At({0});
    EXPECT_EQ(reinterpret_cast<uintptr_t>(begin) % 64, 0u);
    for (int64_t i = 0; i < size; ++i) ASSERT_EQ(begin[i], std::byte{0}) << i;
    const auto pages = static_cast<size_t>((size + sysconf(_SC_PAGESIZE) - 1) / sysconf(_SC_PAGESIZE));
    std::vector<unsigned char> resident(pages + 1);
    if (size > 0) {
      ASSERT_EQ(mincore(begin, static_cast<size_t>(size), resident.data()), 0);
    }
    for (size_t p = 0; p < pages; ++p) EXPECT_TRUE(resident[p] & 1) << "page " << p;
    std::fill_n(begin, size, std::byte{1});  // all of it is ours
  }
}

TEST(ArenaMemory, TakesWhatItSaysAndGivesItBack) {
  const Bytes before = ResidentMemory();
  {
    const auto arena = Arena::Create(MiB(64));
    ASSERT_TRUE(arena.ok());
    const Bytes with = ResidentMemory();
    EXPECT_GE(with, before + MiB(64));
    EXPECT_LE(with, before + MiB(70));
    EXPECT_GE(PeakResidentMemory(), with - MiB(1));
  }
  EXPECT_LE(ResidentMemory(), before + MiB(6));
}

TEST(Arena, RefusesMoreThanTheMachineHasAndSaysWhatHelps) {
  const Bytes available = FindAvailableMemory().bytes;
  EXPECT_GT(available.v, 0);
  for (const Bytes size : {available + GiB(1), GiB(1 << 20)}) {
    const auto arena = Arena::Create(size);
    ASSERT_FALSE(arena.ok());
    EXPECT_EQ(arena.status().code(), StatusCode::kOutOfMemory);
    for (const char* part : {"available", "--memory.recompute", "temper plan"}) {
      EXPECT_NE(arena.status().message().find(part), std::string::npos) << arena.status().message();
    }
  }
}

}  // namespace
}  // namespace temper::arena_test
