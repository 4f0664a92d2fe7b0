// Checkpoints that several ranks write together, each with a writer of its own, and that are read back in any parts.
// Ranks are threads of this process: writers meet in the folder alone.
#include <gtest/gtest.h>

#include <cstring>
#include <map>
#include <thread>

#include "base/faulty_env.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/slices.h"
#include "checkpoint/state_for_test.h"
#include "format/conversion.h"

namespace temper::several_ranks_test {
namespace {

// A tensor of random bits.
struct Whole {
  Whole(const std::string& name, const Shape& shape, uint64_t seed = 1) : name(name), type{DType::kF32, shape} {
    uint64_t x = seed * 7919 + name.size();
    for (const char c : name) x = x * 31 + static_cast<unsigned char>(c);
    for (int64_t i = 0; i < shape.elements(); ++i) {
      x = x * 6364136223846793005u + 1442695040888963407u;
      numbers.push_back(static_cast<float>(static_cast<int32_t>(x >> 32)) * 0x1p-31f);
    }
  }
  // Element by element: the reading that the reader's copying is compared with.
  std::vector<float> Cut(const Box& box) const {
    std::vector<float> part;
    const auto walk = [&](auto&& self, int dim, int64_t at) -> void {
      if (dim == type.shape.rank()) {
        part.push_back(numbers[static_cast<size_t>(at)]);
        return;
      }
      for (int64_t i = 0; i < box.shape[dim]; ++i) self(self, dim + 1, at * type.shape[dim] + box.begin[dim] + i);
    };
    walk(walk, 0, 0);
    return part;
  }

  std::string name;
  TensorType type;
  std::vector<float> numbers;
};

// What the ranks of a run hold of some tensors: uneven rows, uneven columns, boxes of a grid, a copy on each of which
// one rank writes, three dims; and an adapter of which each has rows.
constexpr int kRanks = 4;
struct Rank {
  explicit Rank(int rank, uint64_t seed = 1) : rank(rank), seed(seed) {
    const std::string own = "state-0000" + std::to_string(rank) + "-of-00004.safetensors";
    const Part rows = PartOf(37, kRanks, rank), columns = PartOf(10, kRanks, rank), deep = PartOf(5, kRanks, rank);
    Add("rows.weight", {37, 5}, {{rows.begin, 0}, {rows.count, 5}}, own);
    Add("adam_m:rows.weight", {37, 5}, {{rows.begin, 0}, {rows.count, 5}}, own);
    Add("columns.weight", {6, 10}, {{0, columns.begin}, {6, columns.count}}, own);
    Add("grid.weight", {7, 9}, {{rank / 2 * 4, rank % 2 * 5}, {rank / 2 ? 3 : 4, rank % 2 ? 4 : 5}}, own);
    Add("deep.weight", {3, 5, 4}, {{0, deep.begin, 0}, {3, deep.count, 4}}, own);
    if (rank == 1) Add("norm.weight", {160}, {{0}, {160}}, own);
    if (rank == 0) Add("scalar", {}, {{}, {}}, own);
    Add("lora_B.weight", {8, 2}, {{rank * 2, 0}, {2, 2}}, "adapter_model.safetensors", /*joined=*/true);
  }
  void Add(const std::string& name, const Shape& global, const Box& box, const std::string& file, bool joined = false) {
    const Whole whole(name, global, seed);
    auto& numbers = memory.emplace_back(whole.Cut(box));
    const View view{reinterpret_cast<std::byte*>(numbers.data()), {DType::kF32, box.shape}};
    tensors.push_back({name, PartView(view, global, box.begin), file, name, joined});
  }
  CheckpointContents Contents(int64_t step, CheckpointKind kind = CheckpointKind::kFull) const {
    CheckpointContents c;
    c.kind = kind;
    c.state.step = step;
    c.tensors = tensors;
    if (rank == 0) c.texts = {{"run.yaml", "seed: 42\n"}};
    return c;
  }

  int rank;
  uint64_t seed;
  std::deque<std::vector<float>> memory;
  std::vector<CheckpointTensor> tensors;
};

std::vector<Whole> Wholes(uint64_t seed = 1) {
  return {Whole("rows.weight", {37, 5}, seed),
          Whole("adam_m:rows.weight", {37, 5}, seed),
          Whole("columns.weight", {6, 10}, seed),
          Whole("grid.weight", {7, 9}, seed),
          Whole("deep.weight", {3, 5, 4}, seed),
          Whole("norm.weight", {160}, seed),
          Whole("scalar", {}, seed),
          Whole("lora_B.weight", {8, 2}, seed)};
}

// The writers of all ranks and their memory. `env` may give each rank another disk.
struct RanksOfRun {
  RanksOfRun(const std::string& out, uint64_t seed = 1, const std::map<int, Env*>& disks = {},
             Seconds patience = {60}) {
    for (int r = 0; r < kRanks; ++r) {
      ranks.emplace_back(r, seed);
      const auto disk = disks.find(r);
      writers.push_back(std::make_unique<CheckpointWriter>(
          disk == disks.end() ? PosixEnv() : *disk->second,
          CheckpointWriter::Options{.output_dir = out, .rank = r, .ranks = kRanks, .patience = patience}));
    }
  }
  Status Prepare(int64_t step) {
    for (int r = 0; r < kRanks; ++r) TEMPER_RETURN_IF_ERROR(writers[r]->Prepare(ranks[r].Contents(step)));
    return OkStatus();
  }
  Status Save(int64_t step) {
    TEMPER_RETURN_IF_ERROR(Prepare(step));
    for (auto& writer : writers) writer->Launch();
    for (size_t r = writers.size(); r-- > 0;) TEMPER_RETURN_IF_ERROR(writers[r]->Finish());
    return OkStatus();
  }

  std::deque<Rank> ranks;
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
};

// Fills a part and compares it with the numbers that were saved.
Status Load(const CheckpointReader& reader, const Whole& whole, const Box& box, bool* equal) {
  std::vector<float> part(static_cast<size_t>(box.shape.elements()), -7);
  const View view{reinterpret_cast<std::byte*>(part.data()), {DType::kF32, box.shape}};
  TEMPER_RETURN_IF_ERROR(reader.LoadTensor(whole.name, PartView(view, whole.type.shape, box.begin)));
  *equal = part == whole.Cut(box);
  return OkStatus();
}

Box All(const Shape& shape) {
  Shape begin;
  for (int d = 0; d < shape.rank(); ++d) begin.Append(0);
  return {begin, shape};
}

void ExpectHoldsAll(const std::string& folder, uint64_t seed) {
  const auto reader = CheckpointReader::Open(PosixEnv(), folder);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  for (const Whole& whole : Wholes(seed)) {
    bool equal = false;
    const Status loaded = Load(*reader, whole, All(whole.type.shape), &equal);
    ASSERT_TRUE(loaded.ok()) << loaded.message();
    EXPECT_TRUE(equal) << whole.name;
  }
}

TEST(SeveralRanks, TheirSlicesMakeUpTheWhole) {
  const ScratchFolder out;
  RanksOfRun run(out.path());
  const Status saved = run.Save(3);
  ASSERT_TRUE(saved.ok()) << saved.message();
  const std::string folder = CheckpointFolder(out.path(), 3);
  ExpectHoldsAll(folder, 1);
  EXPECT_TRUE(VerifyAll(PosixEnv(), folder).ok());
  EXPECT_EQ(Must(PosixEnv().List(folder)),
            (std::vector<std::string>{"adapter_model.safetensors", "clock.json", "manifest.json", "run.yaml",
                                      "state-00000-of-00004.safetensors", "state-00001-of-00004.safetensors",
                                      "state-00002-of-00004.safetensors", "state-00003-of-00004.safetensors"}));
  EXPECT_EQ(Must(PosixEnv().List(out.path())), std::vector<std::string>{"checkpoint-3"});
  const Manifest manifest = Must(ReadManifest(PosixEnv(), folder));
  EXPECT_EQ(manifest.Find("rows.weight")->slices.size(), 4u);
  EXPECT_EQ(manifest.Find("norm.weight")->slices.size(), 1u);
  // PEFT finds whole tensors.
  ASSERT_EQ(manifest.Find("lora_B.weight")->slices.size(), 1u);
  EXPECT_EQ(manifest.Find("lora_B.weight")->slices[0].file, "adapter_model.safetensors");
}

TEST(SeveralRanks, AnyOtherCutIsReadFromTheirSlices) {
  const ScratchFolder out;
  ASSERT_TRUE(RanksOfRun(out.path()).Save(3).ok());
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 3));
  ASSERT_TRUE(reader.ok());
  int parts = 0;
  for (const Whole& whole : Wholes()) {
    for (int dim = 0; dim < whole.type.shape.rank(); ++dim) {
      for (const int pieces : {1, 2, 3, 5, 8}) {
        for (int i = 0; i < pieces; ++i) {
          Box box = All(whole.type.shape);
          const Part part = PartOf(whole.type.shape[dim], pieces, i);
          box.begin.set_dim(dim, part.begin);
          box.shape.set_dim(dim, part.count);
          bool equal = false;
          ASSERT_TRUE(Load(*reader, whole, box, &equal).ok());
          EXPECT_TRUE(equal) << whole.name << " dim " << dim << ", " << i << " of " << pieces;
          ++parts;
        }
      }
    }
  }
  EXPECT_GT(parts, 200);
  bool equal = false;  // across all four boxes of the grid
  ASSERT_TRUE(Load(*reader, Whole("grid.weight", {7, 9}), {{2, 3}, {4, 4}}, &equal).ok());
  EXPECT_TRUE(equal);
}

TEST(SeveralRanks, LargeSlicesAreReadInPieces) {
  const ScratchFolder out;
  const Shape shape{700, 1000};  // slices of 0.9 and 1.9 MB: pieces begin amid rows
  const Whole whole("big.weight", shape);
  std::vector<std::unique_ptr<CheckpointWriter>> writers;
  std::deque<std::vector<float>> memory;
  for (int r = 0; r < 2; ++r) {
    const Box box{{0, r == 0 ? 0 : 333}, {700, r == 0 ? 333 : 667}};
    auto& numbers = memory.emplace_back(whole.Cut(box));
    CheckpointContents contents{.kind = CheckpointKind::kFull};
    contents.tensors.push_back(
        {whole.name,
         PartView(View{reinterpret_cast<std::byte*>(numbers.data()), {DType::kF32, box.shape}}, shape, box.begin),
         "state-" + std::to_string(r) + ".safetensors", whole.name});
    writers.push_back(std::make_unique<CheckpointWriter>(
        PosixEnv(), CheckpointWriter::Options{.output_dir = out.path(), .rank = r, .ranks = 2}));
    ASSERT_TRUE(writers.back()->Prepare(contents).ok());
  }
  for (auto& writer : writers) writer->Launch();
  ASSERT_TRUE(writers[0]->Finish().ok());
  const auto reader = CheckpointReader::Open(PosixEnv(), CheckpointFolder(out.path(), 0));
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  for (const Box& box : {All(shape), Box{{1, 300}, {698, 100}}, Box{{350, 0}, {350, 1000}}, Box{{0, 999}, {700, 1}}}) {
    bool equal = false;
    ASSERT_TRUE(Load(*reader, whole, box, &equal).ok());
    EXPECT_TRUE(equal) << box.begin.ToString();
  }
  const std::string file = out.path() + "/model.safetensors";
  ASSERT_TRUE(JoinWeights(PosixEnv(), CheckpointFolder(out.path(), 0), file, DType::kF32).ok());
  std::vector<float> joined(whole.numbers.size());
  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), file));
  ASSERT_TRUE(weights.Find(whole.name).ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(joined))).ok());
  EXPECT_TRUE(joined == whole.numbers);
}

// What generate, export and chat read of a full checkpoint.
TEST(SeveralRanks, WeightsAreReadAsAModelsAndPutTogether) {
  const ScratchFolder out;
  ASSERT_TRUE(RanksOfRun(out.path()).Save(3).ok());
  const std::string folder = CheckpointFolder(out.path(), 3), file = out.path() + "/model.safetensors";
  ASSERT_TRUE(JoinWeights(PosixEnv(), folder, file, DType::kF32).ok());
  // Values alone: moments are no weights.
  const ModelWeights sliced = Must(OpenModelWeights(PosixEnv(), folder)),
                     joined = Must(ModelWeights::Open(PosixEnv(), file));
  ASSERT_EQ(sliced.entries().size(), 7u);
  ASSERT_EQ(joined.entries().size(), 7u);
  for (const ModelWeights* weights : {&sliced, &joined}) {
    for (const Whole& whole : Wholes()) {
      const ModelWeights::Entry entry = weights->Find(whole.name);
      if (whole.name.starts_with("adam_")) {
        EXPECT_EQ(entry.tensor, nullptr);
        continue;
      }
      ASSERT_NE(entry.tensor, nullptr) << whole.name;
      EXPECT_EQ(entry.tensor->bytes(), whole.type.bytes());
      const int64_t n = whole.type.shape.elements();
      for (int64_t first = 0; first < n; first += n / 7 + 1) {
        for (const int64_t count : {int64_t{1}, n / 3, n - first}) {
          if (count == 0 || first + count > n) continue;
          std::vector<float> got(static_cast<size_t>(count));
          ASSERT_TRUE(entry.ReadElementsAs(first, DType::kF32, std::as_writable_bytes(std::span(got))).ok());
          EXPECT_TRUE(std::equal(got.begin(), got.end(), whole.numbers.begin() + first))
              << whole.name << " " << first << " + " << count;
          std::vector<bf16> narrow(static_cast<size_t>(count)), expected(static_cast<size_t>(count));
          ASSERT_TRUE(entry.ReadElementsAs(first, DType::kBF16, std::as_writable_bytes(std::span(narrow))).ok());
          Convert(DType::kF32, reinterpret_cast<const std::byte*>(got.data()), DType::kBF16,
                  reinterpret_cast<std::byte*>(expected.data()), count);
          EXPECT_EQ(std::memcmp(narrow.data(), expected.data(), narrow.size() * sizeof(bf16)), 0);
        }
      }
    }
  }
}

// Save 1 is whole; save 2 fails as the test says.
void ExpectOnlyTheFirst(const std::string& out) {
  ExpectHoldsAll(CheckpointFolder(out, 1), 1);
  EXPECT_EQ(Must(ListCheckpoints(PosixEnv(), out)).size(), 1u);
}

TEST(SeveralRanks, OneThatNeverComesIsNamed) {
  const ScratchFolder out;
  ASSERT_TRUE(RanksOfRun(out.path()).Save(1).ok());
  {
    RanksOfRun second(out.path(), 2, {}, /*patience=*/{0.2});
    ASSERT_TRUE(second.Prepare(2).ok());
    for (const int r : {1, 3}) {
      second.writers[static_cast<size_t>(r)]->Launch();
      ASSERT_TRUE(second.writers[static_cast<size_t>(r)]->Finish().ok());
    }
    second.writers[0]->Launch();
    EXPECT_TRUE(second.writers[0]->WaitUntilRead().ok());
    const Status late = second.writers[0]->Finish();
    EXPECT_EQ(late.code(), StatusCode::kIo);
    EXPECT_NE(late.message().find("ranks 2 have not written"), std::string::npos) << late.message();
  }
  ExpectOnlyTheFirst(out.path());
  EXPECT_EQ(Must(PosixEnv().List(out.path())).size(), 1u) << "what the save left behind";
}

TEST(SeveralRanks, AWriterThatIsDestroyedWaitsForNobody) {
  const ScratchFolder out;
  ASSERT_TRUE(RanksOfRun(out.path()).Save(1).ok());
  const auto begin = std::chrono::steady_clock::now();
  {
    RanksOfRun second(out.path(), 2);
    ASSERT_TRUE(second.Prepare(2).ok());
    second.writers[0]->Launch();
    EXPECT_FALSE(second.writers[0]->FinishWithin(Seconds{0.05})) << "it waits for the others";
  }
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
  ExpectOnlyTheFirst(out.path());
}

TEST(SeveralRanks, AFullDiskOfAnyLeavesThePreviousCheckpoint) {
  for (const int failing : {0, 1, 3}) {
    for (const char* operation : {"append", "sync", "rename", "create"}) {
      SCOPED_TRACE(testing::Message() << "rank " << failing << " " << operation);
      const ScratchFolder out;
      ASSERT_TRUE(RanksOfRun(out.path()).Save(1).ok());
      FaultyEnv full(PosixEnv(), [&](const std::string& op, const std::string&) {
        return op == operation ? IoError("injected: no space left on device") : OkStatus();
      });
      {
        RanksOfRun second(out.path(), 2, {{failing, &full}});
        ASSERT_TRUE(second.Prepare(2).ok());
        for (auto& writer : second.writers) writer->Launch();
        const Status failed = second.writers[static_cast<size_t>(failing)]->Finish();
        EXPECT_NE(failed.message().find("no space left"), std::string::npos) << failed.message();
        // What RunSaver does then on all ranks: the first rank's writer waits in vain.
      }
      ExpectOnlyTheFirst(out.path());
      ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out.path(), KiB(1)).ok());
      EXPECT_EQ(Must(PosixEnv().List(out.path())).size(), 1u);
      ASSERT_TRUE(RanksOfRun(out.path(), 2).Save(2).ok());
      ExpectHoldsAll(CheckpointFolder(out.path(), 2), 2);
    }
  }
}

// A crash left the parts of another run of the same step, fragments among them.
TEST(SeveralRanks, LeftoversOfACrashAreNotTakenForTheNewSave) {
  const ScratchFolder out;
  {
    RanksOfRun old(out.path(), 1);
    ASSERT_TRUE(old.Prepare(2).ok());
    for (const int r : {1, 2, 3}) {
      old.writers[static_cast<size_t>(r)]->Launch();
      ASSERT_TRUE(old.writers[static_cast<size_t>(r)]->Finish().ok());
    }
  }
  ASSERT_TRUE(PosixEnv().IsFile(CheckpointFolder(out.path(), 2) + ".tmp/rank-00002.json"));
  ASSERT_TRUE(RanksOfRun(out.path(), 2).Save(2).ok());
  ExpectHoldsAll(CheckpointFolder(out.path(), 2), 2);
}

TEST(SeveralRanks, ADamagedSliceSpoilsItsOwnPartAlone) {
  const ScratchFolder out;
  ASSERT_TRUE(RanksOfRun(out.path()).Save(3).ok());
  const std::string folder = CheckpointFolder(out.path(), 3), path = folder + "/state-00002-of-00004.safetensors";
  std::string text = Slurp(path);
  text.back() = static_cast<char>(text.back() ^ 1);
  Spill(path, text);
  const auto reader = CheckpointReader::Open(PosixEnv(), folder);
  ASSERT_TRUE(reader.ok()) << reader.status().message();
  const Status bad = VerifyAll(PosixEnv(), folder);
  EXPECT_EQ(bad.code(), StatusCode::kCorrupt);
  EXPECT_NE(bad.message().find("state-00002-of-00004.safetensors: tensor 'rows.weight'"), std::string::npos)
      << bad.message();
  bool equal = false;
  const Whole rows("rows.weight", {37, 5});
  EXPECT_TRUE(Load(*reader, rows, {{0, 0}, {18, 5}}, &equal).ok()) << "ranks 0 and 1 are sound";
  EXPECT_TRUE(equal);
  EXPECT_EQ(Load(*reader, rows, {{17, 0}, {2, 5}}, &equal).code(), StatusCode::kCorrupt);
}

TEST(SeveralRanks, PartsThatDoNotMakeUpATensorAreNotCommitted) {
  const ScratchFolder out;
  for (const bool twice : {false, true}) {
    RanksOfRun run(out.path());
    std::vector<CheckpointTensor>& tensors = run.ranks[2].tensors;
    if (twice) {
      tensors.push_back(run.ranks[1].tensors[5]);  // the norm, which rank 1 writes, too
      tensors.back().file = tensors.front().file;
    } else {
      tensors.erase(tensors.begin());
    }
    const Status saved = run.Save(2);
    EXPECT_EQ(saved.code(), StatusCode::kCorrupt);
    EXPECT_NE(saved.message().find(twice ? "'norm.weight'" : "'rows.weight'"), std::string::npos) << saved.message();
    EXPECT_TRUE(Must(ListCheckpoints(PosixEnv(), out.path())).empty());
  }
}

}  // namespace
}  // namespace temper::several_ranks_test
