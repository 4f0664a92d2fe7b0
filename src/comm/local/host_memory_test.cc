// What another process can do to the memory of a host's ranks: here it is this one, with a descriptor or with garbage.
#include "comm/local/host_memory.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <random>
#include <string>

#include "comm/local/launch.h"
#include "comm/local/local_communicator.h"
#include "comm/local/peer_watch.h"
#include "comm/local/rank_state.h"
#include "comm/local/shared_arenas.h"

namespace temper::host_memory_test {
namespace {

constexpr int kRanks = 2;
constexpr int kNobody = 65534;

std::shared_ptr<HostMemory> Shared(int ranks = kRanks) {
  auto memory = HostMemory::CreateShared(ranks);
  TEMPER_CHECK(memory.ok()) << memory.status().message();
  return *memory;
}

bool Opens(int file, int ranks) {
  const bool is_open = fcntl(file, F_GETFD) >= 0, opened = HostMemory::OpenShared(file, ranks).ok();
  EXPECT_EQ(fcntl(file, F_GETFD) >= 0, is_open) << "it stays the caller's";
  return opened;
}

TEST(HostMemory, NobodyCanCutTheFileThatRanksHaveMapped) {
  const auto memory = Shared();
  for (const off_t size : {off_t{0}, off_t{4096}, off_t{1} << 47}) {
    EXPECT_EQ(ftruncate(memory->file(), size), -1) << size;
    EXPECT_EQ(errno, EPERM);
  }
  EXPECT_EQ(fcntl(memory->file(), F_ADD_SEALS, F_SEAL_WRITE), -1) << "nor take its ranks' right to write";
  memory->control().rank(1).left.store(1);
  EXPECT_EQ(memory->control().rank(1).left.load(), 1u);
}

TEST(HostMemory, OnlyItsOwnerCanOpenTheFile) {
  const auto memory = Shared();
  struct stat info;
  ASSERT_EQ(fstat(memory->file(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600u);
  EXPECT_EQ(info.st_nlink, 0u) << "it has no name";
  const std::string path = "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(memory->file());
  const int again = open(path.c_str(), O_RDWR | O_CLOEXEC);
  EXPECT_GE(again, 0) << "a rank of the same user opens it so";
  close(again);
  if (geteuid() != 0) return;  // only root can try it as somebody else
  const pid_t stranger = fork();
  if (stranger == 0) {
    if (setgid(kNobody) != 0 || setuid(kNobody) != 0) _exit(2);
    // By the way that the system guards, and by a descriptor that got into the wrong hands.
    const std::string inherited = "/proc/self/fd/" + std::to_string(memory->file());
    _exit(open(path.c_str(), O_RDONLY) < 0 && open(inherited.c_str(), O_RDONLY) < 0 ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(waitpid(stranger, &status, 0), stranger);
  EXPECT_EQ(status, 0);
}

TEST(HostMemory, WhatIsNotTheMemoryOfAsManyRanksIsRefused) {
  const auto memory = Shared();
  EXPECT_TRUE(Opens(memory->file(), kRanks));
  EXPECT_FALSE(Opens(memory->file(), kRanks + 1));
  EXPECT_FALSE(Opens(-1, kRanks));
  EXPECT_FALSE(Opens(memory->file(), 0));
  EXPECT_FALSE(Opens(memory->file(), kMaxHostRanks + 1));
}

// A file of the right size: it could be cut later.
TEST(HostMemory, AFileWithoutSealsIsRefused) {
  const int file = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(HostMemory::RegionOf(kRanks))), 0);
  EXPECT_FALSE(Opens(file, kRanks));
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_GROW), 0);
  EXPECT_FALSE(Opens(file, kRanks));
  close(file);
}

// Zeros, as of another program that seals its file, too.
TEST(HostMemory, AFileWithoutTheStampOfThisLayoutIsRefused) {
  const int file = memfd_create("file", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  ASSERT_EQ(ftruncate(file, static_cast<off_t>(HostMemory::RegionOf(kRanks))), 0);
  ASSERT_EQ(fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL), 0);
  EXPECT_FALSE(Opens(file, kRanks));
  {
    void* const header = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    ASSERT_NE(header, MAP_FAILED);
    ControlBlock(header, kRanks).Stamp();
    munmap(header, 4096);
  }
  EXPECT_TRUE(Opens(file, kRanks));
  close(file);
}

TEST(HostMemory, AVariableThatNamesAnotherFileOrRankIsAnErrorThatNamesIt) {
  const auto memory = Shared();
  for (const LaunchedRank& launched :
       {LaunchedRank{.rank = 0, .size = 2, .file = STDERR_FILENO}, LaunchedRank{.rank = 0, .size = 2, .file = 999},
        LaunchedRank{.rank = 0, .size = 2'000'000'000, .file = memory->file()},
        LaunchedRank{.rank = 2, .size = 2, .file = memory->file()},
        LaunchedRank{.rank = -1, .size = 2, .file = memory->file()}}) {
    const auto joined = JoinLaunched(launched);
    ASSERT_FALSE(joined.ok()) << launched.rank << " of " << launched.size;
    EXPECT_NE(joined.status().message().find("TEMPER_LAUNCHED_RANK"), std::string::npos) << joined.status().message();
  }
}

class SharedArenasTest : public testing::Test {
 protected:
  static constexpr uint64_t kArena = uint64_t{2} << 20;

  void SetUp() override {
    const auto arena = peer_.Allocate(Bytes{kArena});
    ASSERT_TRUE(arena.ok()) << arena.status().message();
    (*arena)[kArena - 1] = std::byte{42};
    begin_ = peer_.AddressOf(arena->data());
  }
  RankBlock& block() const { return memory_->control().rank(1); }

  const std::shared_ptr<HostMemory> memory_ = Shared();
  SharedArenas peer_{*memory_, 1}, self_{*memory_, 0};
  uint64_t begin_ = 0;
};

TEST_F(SharedArenasTest, APeersMemoryIsReadUpToItsEndAndNotBeyond) {
  for (const bool mapped_before : {false, true}) {
    EXPECT_FALSE(self_.At(1, begin_, Bytes{kArena + 1}).ok()) << mapped_before;
    EXPECT_FALSE(self_.At(1, begin_ + kArena - 8, Bytes{9}).ok()) << mapped_before;
    EXPECT_FALSE(self_.At(1, begin_ + kArena, Bytes{0}).ok()) << mapped_before;
    EXPECT_FALSE(self_.At(1, begin_ - 1, Bytes{1}).ok()) << mapped_before;
    const auto last = self_.At(1, begin_ + kArena - 1, Bytes{1});
    ASSERT_TRUE(last.ok()) << last.status().message();
    EXPECT_EQ(**last, std::byte{42});
  }
}

// Beyond the file an access would end in SIGBUS.
TEST_F(SharedArenasTest, ARangeThatIsNotOfAPeersRegionIsAnError) {
  const uint64_t end = HostMemory::RegionOf(kRanks);
  for (const Extent& extent :
       {Extent{0, end}, Extent{end, kArena}, Extent{end - kArena, 2 * kArena}, Extent{begin_, ~uint64_t{0}},
        Extent{begin_ + 4096, kArena}, Extent{HostMemory::RegionOf(0), kArena}, Extent{~uint64_t{0} - 8, 9}}) {
    block().extents[0] = extent;
    const auto found = self_.At(1, extent.offset + 1, Bytes{8});
    EXPECT_FALSE(found.ok()) << extent.offset << " + " << extent.size;
    EXPECT_EQ(found.status().code(), StatusCode::kCorrupt);
  }
}

TEST_F(SharedArenasTest, ANumberOfRangesBeyondTheTableIsNotFollowed) {
  block().num_extents.store(~0u);
  EXPECT_FALSE(self_.At(1, HostMemory::RegionOf(kRanks), Bytes{8}).ok());
  EXPECT_TRUE(self_.At(1, begin_, Bytes{8}).ok());
}

// Its own place in the file is not read from what others can write.
TEST_F(SharedArenasTest, ARanksNextMemoryIsItsOwnWhateverItsBlockSays) {
  block().extents[0] = {HostMemory::RegionOf(0), kArena};
  const auto next = peer_.Allocate(Bytes{8});
  ASSERT_TRUE(next.ok());
  EXPECT_EQ(peer_.AddressOf(next->data()), begin_ + kArena);
}

// A vandal of the same user may write anything at any time: errors and nonsense are allowed, faults are not.
TEST(HostMemory, GarbageInTheControlBlockCrashesNoRank) {
  std::mt19937_64 random(1);
  int stopped = 0;
  for (int round = 0; round < 300; ++round) {
    const auto memory = Shared();
    const ControlBlock& control = memory->control();
    SharedArenas arenas(*memory, 0);
    void* const block = mmap(nullptr, static_cast<size_t>(ControlBlock::SizeFor(kRanks).v), PROT_READ | PROT_WRITE,
                             MAP_SHARED, memory->file(), 0);
    ASSERT_NE(block, MAP_FAILED);
    auto* const words = static_cast<uint32_t*>(block);
    const auto count = static_cast<size_t>(ControlBlock::SizeFor(kRanks).v) / sizeof(uint32_t);
    // Small numbers, too: they are what ranks, lanes and states look like.
    for (size_t i = 0; i < count; ++i) {
      words[i] = round % 3 == 0 ? static_cast<uint32_t>(random() % 8) : static_cast<uint32_t>(random());
    }
    // Running or stopped; with another state a stop waits a second for whoever seems to write the cause.
    if (round > 0) words[0] = round % 2 == 0 ? 2 : 0;
    munmap(block, static_cast<size_t>(ControlBlock::SizeFor(kRanks).v));

    PeerWatch watch(control, 0, Lane::kInline, /*processes=*/true);
    for (int i = 0; i < 3; ++i) (void)watch.Judge(1, Seconds{0.01 * i});
    (void)watch.LookAround();
    (void)control.NameOf(1);
    (void)control.patience();
    for (uint32_t lane = 0; lane < kNumLanes; ++lane) (void)WaitsOf(control, 1).HeldUpIn(static_cast<Lane>(lane));
    const Extent& shown = control.rank(1).extents[round % kMaxExtents];
    (void)arenas.At(1, shown.offset, Bytes{8});
    (void)arenas.At(1, control.published(1, Lane::kInline).addresses[0], Bytes{8});
    if (control.stopped()) {
      ++stopped;
      EXPECT_FALSE(control.Cause().ok()) << "what has stopped is an error, whatever its code";
      EXPECT_LE(control.Cause().message().size(), 4096u);
    }
    (void)control.Stop(IoError("the vandal"), 0);
    EXPECT_FALSE(control.Cause().ok());
  }
  EXPECT_EQ(stopped, 149);
}

}  // namespace
}  // namespace temper::host_memory_test
