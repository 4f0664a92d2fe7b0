// What a model's files hold transposed, or dealt by head, goes through memory and comes back as it was: loaded into the
// parts of ranks, saved by them, restored into other parts.
#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cstring>
#include <deque>
#include <map>

#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/state_for_test.h"
#include "checkpoint/training_state.h"
#include "device/elsewhere_for_test.h"
#include "format/safetensors_writer.h"
#include "program/buffer_names.h"

namespace temper::file_layout_test {
namespace {

constexpr int64_t kHeads = 3, kHeadDim = 4, kHidden = 10;

// GPT-2's c_attn, whose columns are q, k and v, and c_proj; GPT-NeoX's query_key_value, dealt by head, and its bias;
// a stack as gpt-oss has it, and one as Granite's mixtures have it, gate above up.
const std::vector<FileTensor>& Files() {
  static const std::vector<FileTensor> files = {
      {.name = "c_attn", .shape = {kHidden, 36}}, {.name = "c_proj", .shape = {700, 1700}},
      {.name = "qkv", .shape = {36, kHidden}},    {.name = "qkv.bias", .shape = {36}},
      {.name = "experts", .shape = {5, 6, 8}},    {.name = "gate_up", .shape = {5, 12, 4}}};
  return files;
}
std::vector<StoredWeight> Weights() {
  const auto& f = Files();
  std::vector<StoredWeight> weights;
  for (int64_t i = 0; i < 3; ++i) {
    const std::string segment = std::string("/") + "qkv"[i];
    weights.push_back({"c_attn" + segment, {12, kHidden}, WeightSource::Columns(f[0], 12 * i, 12)});
    const auto by_head = [&](const FileTensor& t) {
      return WeightSource::StridedRows(t, kHeadDim * i, kHeadDim, 3 * kHeadDim, kHeads);
    };
    weights.push_back({"qkv" + segment, {12, kHidden}, by_head(f[2])});
    weights.push_back({"qkv.bias" + segment, {12}, by_head(f[3])});
  }
  weights.push_back({"c_proj", {1700, 700}, WeightSource::Columns(f[1], 0, 1700)});
  weights.push_back({"experts", {5, 8, 6}, WeightSource::Columns(f[4], 0, 5)});
  weights.push_back({"gate_up/gate", {5, 6, 4}, WeightSource::RowsOfEach(f[5], 0)});
  weights.push_back({"gate_up/up", {5, 6, 4}, WeightSource::RowsOfEach(f[5], 6)});
  return weights;
}

// Exact in bf16, so that a weight and its master are the same number.
std::vector<float> Numbers(const std::string& name, const Shape& shape) {
  std::vector<float> numbers(static_cast<size_t>(shape.elements()));
  for (size_t i = 0; i < numbers.size(); ++i) {
    numbers[i] = static_cast<float>((i * 37 + name.size() * 11) % 251) / 16;
  }
  return numbers;
}

void WriteModel(const std::string& folder) {
  std::vector<TensorDeclaration> declared;
  for (const FileTensor& t : Files()) declared.push_back({t.name, {DType::kF32, t.shape}});
  auto writer = SafetensorsWriter::Create(PosixEnv(), folder + "/model.safetensors", std::move(declared));
  ASSERT_TRUE(writer.ok()) << writer.status().message();
  for (const StoredTensor& stored : writer->order()) {
    for (const FileTensor& t : Files()) {
      if (t.name != stored.name) continue;
      const std::vector<float> numbers = Numbers(t.name, t.shape);
      ASSERT_TRUE(writer->Append(t.name, std::as_bytes(std::span(numbers))).ok());
    }
  }
  ASSERT_TRUE(writer->Finish().ok());
}

// What one of `ranks` holds: its part of a dim of each value, as bf16 with a master, and a state.
struct Rank {
  Rank(int rank, int ranks, int dim) {
    for (const StoredWeight& w : Weights()) {
      const int cut = std::min(dim, w.shape.rank() - 1);
      Shard shard{.global = w.shape, .begin = w.shape};
      for (int d = 0; d < w.shape.rank(); ++d) shard.begin.set_dim(d, 0);
      Shape shape = w.shape;
      const Part part = PartOf(w.shape[cut], ranks, rank);
      shard.begin.set_dim(cut, part.begin);
      shape.set_dim(cut, part.count);
      const auto add = [&](const std::string& name, DType dtype, Role role, bool trainable) {
        Buffer b{.name = name, .type = {dtype, shape}, .role = role, .trainable = trainable};
        if (ranks > 1) b.shard = shard;
        memory[name].resize(static_cast<size_t>(b.type.bytes().v));
        program.buffers.push_back(std::move(b));
      };
      add(w.name, DType::kBF16, Role::kWeight, true);
      add(MasterName(w.name), DType::kF32, Role::kOptimizerState, false);
      add("adam_m:" + w.name, DType::kF32, Role::kOptimizerState, false);
    }
  }
  BufferLookup Lookup(Stream& stream) {
    return [this, &stream](const std::string& name) {
      const int i = program.FindBuffer(name);
      if (i < 0) return DevicePart();
      const Buffer& b = program.buffers[static_cast<size_t>(i)];
      const View view{memory[name].data(), b.type};
      return DevicePart(b.shard ? PartView(view, b.shard->global, b.shard->begin) : PartView(view), stream);
    };
  }

  Program program;
  std::map<std::string, std::vector<std::byte>> memory;
};

// Every tensor of the folder holds what Numbers gives, and none is missing.
void ExpectHoldsAll(const ModelWeights& weights) {
  ASSERT_EQ(weights.entries().size(), Files().size());
  for (const FileTensor& t : Files()) {
    const ModelWeights::Entry entry = weights.Find(t.name);
    ASSERT_NE(entry.tensor, nullptr) << t.name;
    EXPECT_EQ(Must(entry.tensor->type()), (TensorType{DType::kF32, t.shape})) << t.name;
    std::vector<float> numbers(static_cast<size_t>(t.shape.elements()));
    ASSERT_TRUE(entry.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(numbers))).ok());
    EXPECT_TRUE(numbers == Numbers(t.name, t.shape)) << t.name;
  }
}

TEST(FileLayout, ComesBackFromAnyPartsOfRanksIntoAnyOthers) {
  const ScratchFolder model;
  WriteModel(model.path());
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), model.path()));
  const std::vector<StoredWeight> weights = Weights();
  std::vector<std::pair<int, int>> cuts = {{1, 0}, {2, 0}, {3, 0}, {5, 0}, {2, 1}, {3, 1}, {2, 2}};  // ranks, dim
  for (const auto& [ranks, dim] : cuts) {
    for (const bool away : {false, true}) {
      SCOPED_TRACE(fmt::format("{} ranks, dim {}, {}", ranks, dim, away ? "elsewhere" : "on the host"));
      std::deque<Elsewhere> streams;  // one for each writer's thread, and the last for this one
      const auto stream_of = [&]() -> Stream& { return away ? streams.emplace_back() : HostStream(); };
      const ScratchFolder out;
      std::deque<Rank> holders;
      std::vector<std::unique_ptr<CheckpointWriter>> writers;
      for (int r = 0; r < ranks; ++r) {
        Rank& rank = holders.emplace_back(r, ranks, dim);
        Stream& stream = stream_of();
        const Status loaded = LoadWeights(files, weights, rank.Lookup(stream));
        ASSERT_TRUE(loaded.ok()) << loaded.message();
        for (const StoredWeight& w : weights) rank.memory["adam_m:" + w.name] = rank.memory[MasterName(w.name)];
        CheckpointContents contents{.kind = CheckpointKind::kFull};
        contents.tensors = SlicesOf(TrainingState(rank.program, rank.Lookup(stream), weights, r, ranks));
        writers.push_back(std::make_unique<CheckpointWriter>(
            PosixEnv(),
            CheckpointWriter::Options{.output_dir = out.path(), .rank = r, .ranks = ranks, .stream = &stream}));
        ASSERT_TRUE(writers.back()->Prepare(contents).ok());
      }
      for (auto& writer : writers) writer->Launch();
      for (size_t r = writers.size(); r-- > 0;) {
        const Status saved = writers[r]->Finish();
        ASSERT_TRUE(saved.ok()) << saved.message();
      }
      Stream& stream = stream_of();
      const std::string folder = CheckpointFolder(out.path(), 0);
      EXPECT_TRUE(VerifyAll(PosixEnv(), folder).ok());
      ExpectHoldsAll(Must(OpenModelWeights(PosixEnv(), folder)));
      const CheckpointReader reader = Must(CheckpointReader::Open(PosixEnv(), folder));
      if (ranks == 1) {
        EXPECT_EQ(reader.manifest().Find("c_attn")->slices.size(), 1u);
        EXPECT_EQ(reader.manifest().Find("qkv")->slices.size(), 1u);
      }
      for (const auto& [other_ranks, other_dim] : cuts) {
        Rank whole(0, other_ranks, other_dim), expected(0, other_ranks, other_dim);
        ASSERT_TRUE(LoadWeights(files, weights, expected.Lookup(HostStream())).ok());
        for (const StoredWeight& w : weights) expected.memory["adam_m:" + w.name] = expected.memory[MasterName(w.name)];
        const Status restored = RestoreTrainingState(reader, whole.program, whole.Lookup(stream), weights);
        ASSERT_TRUE(restored.ok()) << restored.message();
        EXPECT_TRUE(whole.memory == expected.memory) << "into " << other_ranks << " along " << other_dim;
      }
    }
  }
}

}  // namespace
}  // namespace temper::file_layout_test
