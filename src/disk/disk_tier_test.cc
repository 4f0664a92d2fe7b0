#include "disk/disk_tier.h"

#include <algorithm>
#include <thread>

#include "disk/model_files_for_test.h"
#include "tensor/tier.h"

namespace temper::disk_tier_test {
namespace {

// Bytes at an address that is `shift` off a multiple of 4096.
class ShiftedBytes {
 public:
  ShiftedBytes(size_t size, size_t shift) : memory_(size + shift + 4096) {
    const size_t off = reinterpret_cast<uintptr_t>(memory_.data()) % 4096;
    bytes_ = std::span(memory_).subspan((4096 - off) % 4096 + shift, size);
  }
  std::span<std::byte> operator*() const { return bytes_; }

 private:
  std::vector<std::byte> memory_;
  std::span<std::byte> bytes_;
};

void Fill(std::span<std::byte> out, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < out.size(); i += 8) {
    const uint64_t x = random();
    std::memcpy(&out[i], &x, std::min<size_t>(8, out.size() - i));
  }
}

bool Same(std::span<const std::byte> a, std::span<const std::byte> b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size()) == 0;
}

// A disk's file system, and one in memory that knows no page cache to go around.
class SpillTest : public testing::TestWithParam<const char*> {
 protected:
  static std::string Parent() { return GetParam() == std::string("disk") ? testing::TempDir() : "/dev/shm"; }
  void SetUp() override {
    if (!PosixEnv().IsFolder(Parent())) GTEST_SKIP() << "there is no " << Parent();
  }
};
INSTANTIATE_TEST_SUITE_P(FileSystems, SpillTest, testing::Values("disk", "memory"),
                         [](const auto& info) { return info.param; });

TEST_P(SpillTest, RandomReadsAndWritesEqualAShadowInMemory) {
  const ScratchFolder scratch(Parent());
  constexpr int64_t kSize = (11 << 20) + 777;
  const auto tier = Must(DiskTier::Create(PosixEnv(), {scratch.path(), Bytes{kSize}, {}}));
  std::vector<std::byte> shadow(kSize);  // a spill file begins as zeros
  std::mt19937_64 random(3);
  const auto below = [&](int64_t n) { return static_cast<int64_t>(random() % static_cast<uint64_t>(n)); };
  for (int i = 0; i < 300; ++i) {
    const int64_t longest = i % 3 == 0 ? 100 : i % 3 == 1 ? 20'000 : 6 << 20;
    int64_t size = 1 + below(longest), at = below(kSize - size + 1);
    if (i % 4 == 0) {  // whole blocks
      at = at / 4096 * 4096;
      size = std::max<int64_t>(size / 4096, 1) * 4096;
    }
    const ShiftedBytes memory(static_cast<size_t>(size), i % 5 == 0 ? 0 : static_cast<size_t>(below(4096)));
    const auto part = std::span(shadow).subspan(static_cast<size_t>(at), static_cast<size_t>(size));
    if (i % 2 == 0) {
      Fill(*memory, random());
      std::copy((*memory).begin(), (*memory).end(), part.begin());
      Must(tier->Write(Bytes{at}, *memory));
    } else {
      const bool awaited = i % 4 == 1;
      if (awaited) tier->NoteAwaited(true);
      Must(tier->Read(Bytes{at}, *memory));
      if (awaited) tier->NoteAwaited(false);
      ASSERT_TRUE(Same(*memory, part)) << size << " bytes at " << at << " in round " << i;
    }
  }
  std::vector<std::byte> all(kSize);
  Must(tier->Read(Bytes{0}, all));
  EXPECT_TRUE(Same(all, shadow));
  EXPECT_TRUE(Must(PosixEnv().List(scratch.path())).empty());
}

// Slots that share blocks at their ends. The writer fills odd slots, the reader reads even ones, which must keep what
// they had; then they change sides.
TEST_P(SpillTest, AReaderAndAWriterMayBeAtWorkAtOnce) {
  const ScratchFolder scratch(Parent());
  constexpr int64_t kSlot = 1'300'001, kSlots = 8;
  constexpr int kRounds = 12;
  const auto tier = Must(DiskTier::Create(PosixEnv(), {scratch.path(), Bytes{kSlot * kSlots}, {}}));
  std::vector<std::vector<std::byte>> slots(kSlots, std::vector<std::byte>(kSlot));
  for (int64_t s = 0; s < kSlots; ++s) {
    Fill(slots[static_cast<size_t>(s)], static_cast<uint64_t>(s));
    Must(tier->Write(Bytes{s * kSlot}, slots[static_cast<size_t>(s)]));
  }
  for (int round = 0; round < kRounds; ++round) {
    std::thread writer([&] {
      for (int64_t s = round % 2; s < kSlots; s += 2) {
        std::vector<std::byte>& slot = slots[static_cast<size_t>(s)];
        Fill(slot, static_cast<uint64_t>(1000 * round + s));
        const Status written = tier->Write(Bytes{s * kSlot}, slot);
        EXPECT_TRUE(written.ok()) << written.message();
      }
    });
    std::vector<std::byte> got(kSlot);
    for (int64_t s = 1 - round % 2; s < kSlots; s += 2) {
      const Status read = tier->Read(Bytes{s * kSlot}, got);
      EXPECT_TRUE(read.ok()) << read.message();
      EXPECT_TRUE(Same(got, slots[static_cast<size_t>(s)])) << "slot " << s << " in round " << round;
    }
    writer.join();
  }
}

// Where one ends and the next begins in the same block, each reads the block, changes its part and writes it back.
TEST_P(SpillTest, WritesOfNeighboursAtOnceLoseNothing) {
  const ScratchFolder scratch(Parent());
  constexpr int64_t kWriters = 4, kEach = 1000;  // all in one block
  const auto tier = Must(DiskTier::Create(PosixEnv(), {scratch.path(), Bytes{kWriters * kEach}, {}}));
  for (int round = 0; round < 50; ++round) {
    std::vector<std::thread> writers;
    for (int64_t w = 0; w < kWriters; ++w) {
      writers.emplace_back([&tier, w, round] {
        const std::vector<std::byte> own(kEach, static_cast<std::byte>(16 * w + round % 16));
        EXPECT_TRUE(tier->Write(Bytes{w * kEach}, own).ok());
      });
    }
    for (std::thread& writer : writers) writer.join();
    std::vector<std::byte> all(kWriters * kEach);
    ASSERT_TRUE(tier->Read(Bytes{0}, all).ok());
    for (int64_t i = 0; i < kWriters * kEach; ++i) {
      ASSERT_EQ(all[static_cast<size_t>(i)], static_cast<std::byte>(16 * (i / kEach) + round % 16)) << i;
    }
  }
}

TEST_P(SpillTest, TiersShareAFolder) {
  const ScratchFolder scratch(Parent());
  const std::string folder = scratch / "made/where/missing";
  std::vector<std::unique_ptr<DiskTier>> tiers;
  std::vector<std::byte> data(3 << 20), got(data.size());
  const Bytes size{static_cast<int64_t>(data.size())};
  for (uint64_t rank = 0; rank < 3; ++rank) {
    tiers.push_back(Must(DiskTier::Create(PosixEnv(), {folder, size, {}})));
    Fill(data, rank);
    Must(tiers.back()->Write(Bytes{0}, data));
  }
  for (uint64_t rank = 0; rank < 3; ++rank) {
    Fill(data, rank);
    Must(tiers[rank]->Read(Bytes{0}, got));
    EXPECT_TRUE(Same(got, data)) << rank;
  }
  EXPECT_TRUE(Must(PosixEnv().List(folder)).empty());
}

struct Stored {
  DType stored, as;
  bool odd_header;
};
class MappedTest : public testing::TestWithParam<Stored> {};
INSTANTIATE_TEST_SUITE_P(
    Types, MappedTest,
    testing::Values(Stored{DType::kF32, DType::kF32, false}, Stored{DType::kBF16, DType::kBF16, false},
                    Stored{DType::kF32, DType::kBF16, false}, Stored{DType::kBF16, DType::kF32, false},
                    Stored{DType::kF16, DType::kF32, false}, Stored{DType::kF16, DType::kBF16, false},
                    Stored{DType::kF32, DType::kBF16, true}, Stored{DType::kBF16, DType::kF32, true},
                    Stored{DType::kF32, DType::kF32, true}, Stored{DType::kBF16, DType::kBF16, true}),
    [](const auto& info) {
      return std::string(ToString(info.param.stored)) + "_as_" + std::string(ToString(info.param.as)) +
             (info.param.odd_header ? "_odd_header" : "");
    });

// The oracle is what loading into memory does: SafetensorsFile::ReadElementsAs.
TEST_P(MappedTest, RegionsReadWhatLoadingReads) {
  const auto [stored, as, odd_header] = GetParam();
  const ScratchFolder scratch;
  const std::string path = scratch / "model.safetensors";
  // Lengths that leave the second tensor, and its rows, off any block.
  const Shape shape{1237, 1301};
  WriteModelFile(path, {{"small", {stored, {33}}}, {"w", {stored, shape}}, {"z", {stored, {5, 7}}}}, odd_header);
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  const int64_t size = SizeOf(as);

  DiskTier::Spec spec;
  Bytes at{64};  // holes between regions are allowed
  for (const char* name : {"z", "w", "small"}) {
    const ModelWeights::Entry entry = Must(weights.Require(name));
    spec.mapped.push_back({at, Must(FindSlice(entry, WholeOf(entry, as)))});
    at = AlignUp(at + spec.mapped.back().slice.bytes(), 64);
  }
  const ModelWeights::Entry w = Must(weights.Require("w"));
  const PartView some_rows(View{nullptr, {as, {400, 1301}}}, shape, {777, 0});
  spec.mapped.push_back({at, Must(FindSlice(w, some_rows))});
  const auto tier = Must(DiskTier::Create(PosixEnv(), spec));

  for (const DiskTier::MappedRegion& region : spec.mapped) {
    const ModelWeights::Entry entry = Must(weights.Require(region.slice.name));
    std::vector<std::byte> expected(static_cast<size_t>(region.slice.bytes().v));
    const int64_t first = &region == &spec.mapped.back() ? 777 * 1301 : 0;
    Must(entry.ReadElementsAs(first, as, expected));
    const ShiftedBytes whole(expected.size(), 64);
    Must(tier->Read(region.at, *whole));
    ASSERT_TRUE(Same(*whole, expected)) << region.slice.name;
    std::mt19937_64 random(5);
    for (int i = 0; i < 20; ++i) {
      const int64_t n = 1 + static_cast<int64_t>(random() % static_cast<uint64_t>(region.slice.elements));
      const int64_t e = static_cast<int64_t>(random() % static_cast<uint64_t>(region.slice.elements - n + 1));
      const ShiftedBytes part(static_cast<size_t>(n * size), static_cast<size_t>(size) * (random() % 512));
      Must(tier->Read(region.at + Bytes{e * size}, *part));
      ASSERT_TRUE(Same(*part, std::span(expected).subspan(static_cast<size_t>(e * size), (*part).size())))
          << n << " elements from " << e << " of " << region.slice.name;
    }
  }
}

TEST(DiskTier, ShardsAndASpillFileAreOneSpace) {
  const ScratchFolder scratch;
  DiskTier::Spec spec{scratch / "spill", Bytes{10'000}, {}};
  std::vector<ModelWeights> shards;
  Bytes at = spec.spill;
  for (const char* name : {"b", "a"}) {
    const std::string path = JoinPath(scratch.path(), std::string(name) + ".safetensors");
    WriteModelFile(path, {{name, {DType::kBF16, {300, 100}}}, {"also", {DType::kBF16, {10}}}});
    shards.push_back(Must(ModelWeights::Open(PosixEnv(), path)));
    for (const ModelWeights::Entry& entry : shards.back().entries()) {
      spec.mapped.push_back({at, Must(FindSlice(entry, WholeOf(entry, DType::kBF16)))});
      at += spec.mapped.back().slice.bytes();
    }
  }
  const auto tier = Must(DiskTier::Create(PosixEnv(), spec));
  EXPECT_EQ(tier->spill(), spec.spill);
  std::vector<std::byte> spilled(10'000), got(10'000);
  Fill(spilled, 1);
  Must(tier->Write(Bytes{0}, spilled));
  for (size_t i = 0; i < spec.mapped.size(); ++i) {
    const auto& region = spec.mapped[i];
    std::vector<std::byte> part(static_cast<size_t>(region.slice.bytes().v)), expected(part.size());
    Must(tier->Read(region.at, part));
    Must(Must(shards[i / 2].Require(region.slice.name)).ReadElementsAs(0, DType::kBF16, expected));
    EXPECT_TRUE(Same(part, expected)) << region.slice.path << " " << region.slice.name;
  }
  Must(tier->Read(Bytes{0}, got));
  EXPECT_TRUE(Same(got, spilled));
}

// A stack of experts that files have in a tensor each is one value, and its matrices are read alone or together.
TEST(DiskTier, RegionsOneBehindTheOtherAreReadAsOneAndCopiesLieInTheSpillFile) {
  const ScratchFolder scratch;
  const TensorType matrix{DType::kBF16, {700, 1001}};
  std::vector<TensorDeclaration> tensors;
  for (const char* name : {"e0", "e1", "e2"}) tensors.push_back({name, matrix});
  WriteModelFile(scratch / "model.safetensors", tensors);
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), scratch.path()));
  for (const DType as : {DType::kBF16, DType::kF32}) {
    const Bytes each{700 * 1001 * SizeOf(as)}, copied_at{1 << 20};
    DiskTier::Spec spec{scratch / "spill", Bytes{5000}, {}, {{copied_at, Bytes{70'001}}}};
    std::vector<std::byte> stack;
    const Bytes first{2 << 20};
    for (int64_t e = 0; e < 3; ++e) {
      const ModelWeights::Entry entry = Must(weights.Require("e" + std::to_string(e)));
      spec.mapped.push_back({first + each * e, Must(FindSlice(entry, WholeOf(entry, as)))});
      std::vector<std::byte> expected(static_cast<size_t>(each.v));
      Must(entry.ReadElementsAs(0, as, expected));
      stack.insert(stack.end(), expected.begin(), expected.end());
    }
    const auto tier = Must(DiskTier::Create(PosixEnv(), spec));
    std::vector<std::byte> copy(70'001), spilled(5000), got(stack.size());
    Fill(copy, 1);
    Fill(spilled, 2);
    Must(tier->Write(copied_at, copy));
    Must(tier->Write(Bytes{0}, spilled));
    Must(tier->Read(first, got));
    EXPECT_TRUE(Same(got, stack));
    // Over a border, and three reads at once, one of them of the copy.
    const auto at = [&](Bytes begin, size_t size) {
      return std::span(got).subspan(static_cast<size_t>(begin.v), size);
    };
    const Bytes across = each - Bytes{400};
    std::vector<std::byte> of_copy(1000), of_spill(5000);
    std::fill(got.begin(), got.end(), std::byte{});
    const StoreRead reads[] = {{first + across, at(across, 800)},
                               {copied_at + Bytes{69'001}, of_copy},
                               {first + each * 2, at(each * 2, static_cast<size_t>(each.v))},
                               {Bytes{0}, of_spill}};
    Must(tier->ReadAll(reads));
    EXPECT_TRUE(Same(of_copy, std::span(copy).last(1000)));
    EXPECT_TRUE(Same(of_spill, spilled));
    std::vector<std::byte> expected(stack.size());
    for (const auto& [begin, size] : {std::pair(across, Bytes{800}), {each * 2, each}}) {
      std::copy_n(stack.begin() + begin.v, size.v, expected.begin() + begin.v);
    }
    EXPECT_TRUE(Same(got, expected));
  }
}

TEST(DiskTier, TakesMemoryForWritesOnlyWhereItSpills) {
  EXPECT_EQ(DiskBuffers(/*spills=*/true), DiskBuffers(/*spills=*/false) * 2);
  EXPECT_LE(DiskBuffers(/*spills=*/true), MiB(16));
}

}  // namespace
}  // namespace temper::disk_tier_test
