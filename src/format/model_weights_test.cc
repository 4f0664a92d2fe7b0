// Model folders: one file, shards and their index, and what is said of folders that lie.
#include "format/model_weights.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "base/faulty_env.h"
#include "base/project_folder_for_test.h"
#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/sharded_safetensors_writer.h"

namespace temper::model_weights_test {
namespace {

// `n` bytes that name their tensor and place, so that a mix-up shows.
std::vector<std::byte> Content(const std::string& name, int64_t n) {
  std::vector<std::byte> bytes(static_cast<size_t>(n));
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(name[i % name.size()] + i / 7);
  return bytes;
}

// Writes `tensors` in shards of at most `max_shard` bytes of data.
Status WriteModel(Env& env, const std::string& folder, std::vector<TensorDeclaration> tensors, int64_t max_shard,
                  const std::string& stem = "model") {
  auto writer =
      ShardedSafetensorsWriter::Create(env, folder, std::move(tensors), {.max_shard = {max_shard}, .stem = stem});
  if (!writer.ok()) return writer.status();
  for (const StoredTensor& t : writer->order()) {
    const auto bytes = Content(t.name, t.bytes().v);
    const size_t half = bytes.size() / 2;
    TEMPER_RETURN_IF_ERROR(writer->Append(t.name, std::span(bytes).first(half)));
    TEMPER_RETURN_IF_ERROR(writer->Append(t.name, std::span(bytes).subspan(half)));
  }
  return writer->Finish();
}

const std::vector<TensorDeclaration> kModel = {
    {"embed", {DType::kBF16, {10, 4}}},                                         // 80 bytes
    {"a.weight", {DType::kF32, {4, 4}}},                                        // 64
    {"a.bias", {DType::kF32, {4}}},                                             // 16
    {"empty", {DType::kF32, {0}}},       {"b.weight", {DType::kBF16, {4, 4}}},  // 32
    {"big", {DType::kF32, {50}}},                                               // 200
    {"norm", {DType::kF32, {4}}},                                               // 16
};

void ExpectWholeModel(Env& env, const std::string& path, size_t files) {
  auto weights = ModelWeights::Open(env, path);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->files().size(), files);
  EXPECT_EQ(weights->entries().size(), kModel.size());
  EXPECT_EQ(weights->bytes().v, 80 + 64 + 16 + 32 + 200 + 16);
  EXPECT_EQ(weights->Metadata("format"), "pt");
  EXPECT_EQ(weights->Metadata("absent"), "");
  for (const TensorDeclaration& d : kModel) {
    const auto entry = weights->Require(d.name);
    ASSERT_TRUE(entry.ok()) << entry.status().message();
    EXPECT_EQ(*entry->tensor->type(), d.type);
    std::vector<std::byte> bytes(static_cast<size_t>(d.type.bytes().v));
    ASSERT_TRUE(entry->file->ReadTensor(d.name, bytes).ok());
    EXPECT_EQ(bytes, Content(d.name, d.type.bytes().v)) << d.name;
  }
  EXPECT_EQ(weights->Find("absent").tensor, nullptr);
  EXPECT_NE(weights->Require("absent").status().message().find("no tensor 'absent'"), std::string::npos);
}

TEST(ModelWeights, ReadsBackWhatWasWrittenInOneFileOrInShards) {
  const struct {
    int64_t max_shard;
    std::vector<std::string> files;
  } kCases[] = {
      {408, {"model.safetensors"}},
      {160,
       {"model-00001-of-00003.safetensors", "model-00002-of-00003.safetensors", "model-00003-of-00003.safetensors",
        "model.safetensors.index.json"}},  // 160 | 32 | 200 is too large for any, 16 -> 160, 32, 200, 16
      {300, {"model-00001-of-00002.safetensors", "model-00002-of-00002.safetensors", "model.safetensors.index.json"}},
  };
  for (const auto& c : kCases) {
    MemoryEnv env;
    ASSERT_TRUE(WriteModel(env, "m", kModel, c.max_shard).ok());
    const auto names = *env.List("m");
    if (c.max_shard == 160) {
      EXPECT_EQ(names.size(), 5u);  // embed a.weight a.bias empty | b.weight | big | norm, and the index
      ExpectWholeModel(env, "m", 4);
    } else {
      EXPECT_EQ(names, c.files);
      ExpectWholeModel(env, "m", c.max_shard == 408 ? 1 : 2);
    }
  }
}

TEST(ModelWeights, IndexIsAsTransformersWritesIt) {
  MemoryEnv env;
  ASSERT_TRUE(WriteModel(env, "m", {{"b", {DType::kF32, {2}}}, {"a", {DType::kF32, {2}}}}, 8).ok());
  EXPECT_EQ(env.files["m/model.safetensors.index.json"], R"({
  "metadata": {
    "total_size": 16
  },
  "weight_map": {
    "a": "model-00002-of-00002.safetensors",
    "b": "model-00001-of-00002.safetensors"
  }
}
)");
  EXPECT_TRUE(ModelWeights::Open(env, "m/model.safetensors.index.json").ok());
  EXPECT_TRUE(ModelWeights::Open(env, "m/model-00001-of-00002.safetensors").ok());
}

TEST(ModelWeights, TotalSizeIsWhatTheFolderTakes) {
  for (int64_t max_shard : {100, 1000}) {
    MemoryEnv env;
    const auto writer = ShardedSafetensorsWriter::Create(env, "m", kModel, {.max_shard = {max_shard}});
    ASSERT_TRUE(writer.ok());
    ASSERT_TRUE(WriteModel(env, "m", kModel, max_shard).ok());
    int64_t bytes = 0;
    for (const auto& [path, text] : env.files) bytes += static_cast<int64_t>(text.size());
    EXPECT_EQ(writer->total_size().v, bytes);
  }
}

TEST(ModelWeights, AFaultWhileWritingShardsLeavesNoIndex) {
  int faults = 0;
  for (int fail_at = 0;; ++fail_at) {
    MemoryEnv memory;
    int calls = 0;
    FaultyEnv env(memory, [&](const std::string& operation, const std::string&) {
      return operation != "remove" && calls++ == fail_at ? IoError("no space left on device") : OkStatus();
    });
    const Status status = WriteModel(env, "m", kModel, 100);
    if (status.ok()) break;
    ++faults;
    EXPECT_NE(status.message().find("no space left"), std::string::npos) << status.message();
    const bool has_index = memory.files.contains("m/model.safetensors.index.json");
    if (has_index) {
      ExpectWholeModel(memory, "m", 5);  // only the last sync failed
    } else {
      EXPECT_FALSE(ModelWeights::Open(memory, "m").ok());
    }
  }
  EXPECT_GT(faults, 40);
}

// A folder of two shards, a.weight in the first and b.weight in the second, to be spoilt.
MemoryEnv TwoShards() {
  MemoryEnv env;
  const Status written = WriteModel(env, "m", {{"a.weight", {DType::kF32, {4}}}, {"b.weight", {DType::kF32, {4}}}}, 16);
  TEMPER_CHECK(written.ok()) << written.message();
  return env;
}
constexpr char kIndex[] = "m/model.safetensors.index.json";
constexpr char kShard1[] = "m/model-00001-of-00002.safetensors";
constexpr char kShard2[] = "m/model-00002-of-00002.safetensors";

void ExpectRefused(MemoryEnv& env, const std::string& path, StatusCode code, std::vector<std::string> fragments,
                   WeightsKind kind = WeightsKind::kModel) {
  const Status status = ModelWeights::Open(env, path, kind).status();
  EXPECT_EQ(status.code(), code) << status.message();
  for (const std::string& f : fragments) {
    EXPECT_NE(status.message().find(f), std::string::npos) << "'" << f << "' is not in: " << status.message();
  }
}

TEST(ModelWeights, NamesEveryMissingShard) {
  MemoryEnv env = TwoShards();
  env.files.erase(kShard2);
  ExpectRefused(env, "m", StatusCode::kNotFound,
                {"m lacks 1 of the 2 shards", "'model-00002-of-00002.safetensors'", "download"});
}

TEST(ModelWeights, NamesTheShardThatIsDamaged) {
  MemoryEnv env = TwoShards();
  env.files[kShard2].pop_back();
  ExpectRefused(env, "m", StatusCode::kCorrupt, {kShard2, "truncated", "'b.weight'"});
}

// transformers 5.24 opens the shards that an index names and takes what they have.
TEST(ModelWeights, ShardsCountAndNotWhatAnIndexSaysOfTheirTensors) {
  MemoryEnv env = TwoShards();
  std::swap(env.files[kShard1], env.files[kShard2]);
  auto weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->Find("a.weight").file->path(), kShard2);

  env = TwoShards();
  env.files[kIndex] = R"({"weight_map":{"a.weight":"model-00001-of-00002.safetensors",)"
                      R"("b.weight":"model-00002-of-00002.safetensors","mtp":"model-00002-of-00002.safetensors"}})";
  weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->entries().size(), 2u);
  EXPECT_EQ(weights->ListedIn("mtp"), "model-00002-of-00002.safetensors");
  EXPECT_EQ(weights->ListedIn("other"), "");
}

TEST(ModelWeights, OfATensorInTwoShardsTheLastCountsAsInTransformers) {
  MemoryEnv env = TwoShards(), both;
  ASSERT_TRUE(WriteModel(both, "m", {{"b.weight", {DType::kF32, {4}}}, {"a.weight", {DType::kF32, {4}}}}, 1000).ok());
  env.files[kShard2] = both.files["m/model.safetensors"];
  const auto weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  ASSERT_EQ(weights->notices().size(), 1u);
  const std::string& said = weights->notices()[0];
  EXPECT_EQ(weights->entries().size(), 2u);
  EXPECT_EQ(weights->Find("a.weight").file->path(), kShard2);
  EXPECT_NE(said.find("'a.weight' is in 'model-00001-of-00002.safetensors' and 'model-00002-of-00002.safetensors'"),
            std::string::npos)
      << said;
  EXPECT_NE(said.find("though the index says 'model-00001-of-00002.safetensors'"), std::string::npos) << said;
  env.files[kIndex] = R"({"weight_map":{"b.weight":"model-00002-of-00002.safetensors"}})";
  const auto unlisted = ModelWeights::Open(env, "m");
  ASSERT_TRUE(unlisted.ok()) << unlisted.status().message();
  for (const std::string& notice : unlisted->notices()) EXPECT_EQ(notice.find("the index says"), notice.npos) << notice;
}

TEST(ModelWeights, RefusesAnIndexThatPointsOutOfItsFolder) {
  for (const std::string shard : {"../secret.safetensors", "/etc/passwd", "..", ".", "", "sub/x.safetensors",
                                  "..\\\\x.safetensors", "x\\u0000.safetensors"}) {
    MemoryEnv env = TwoShards();
    env.files["secret.safetensors"] = env.files[kShard1];
    env.files[kIndex] = R"({"weight_map":{"a.weight":")" + shard + R"("}})";
    ExpectRefused(env, "m", StatusCode::kCorrupt, {kIndex, "'a.weight'", "not a plain file name"});
  }
}

TEST(ModelWeights, RefusesAnIndexThatIsNone) {
  const std::pair<std::string, std::string> kCases[] = {
      {"", "not valid JSON"},
      {"[]", "no object 'weight_map'"},
      {"{}", "no object 'weight_map'"},
      {"3", "no object"},
      {R"({"weight_map":[]})", "no object"},
      {R"({"weight_map":{}})", "is empty"},
      {R"({"weight_map":{"a":3}})", "file name for tensor 'a' but gives number"},
  };
  for (const auto& [text, fragment] : kCases) {
    MemoryEnv env = TwoShards();
    env.files[kIndex] = text;
    ExpectRefused(env, "m", StatusCode::kCorrupt, {kIndex, fragment});
  }
}

TEST(ModelWeights, TakesTensorsThatTheIndexForgot) {
  MemoryEnv env;
  ASSERT_TRUE(
      WriteModel(env, "m", {{"a", {DType::kF32, {1}}}, {"b", {DType::kF32, {1}}}, {"c", {DType::kF32, {2}}}}, 8).ok());
  env.files[kIndex] =
      R"({"weight_map":{"a":"model-00001-of-00002.safetensors","c":"model-00002-of-00002.safetensors"}})";
  auto weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_TRUE(weights->Find("b").tensor);
}

TEST(ModelWeights, PrefersTheSingleFileAsTransformersDoes) {
  MemoryEnv env = TwoShards();
  MemoryEnv single;
  ASSERT_TRUE(WriteModel(single, "m", {{"only", {DType::kF32, {1}}}}, 1000).ok());
  env.files["m/model.safetensors"] = single.files["m/model.safetensors"];
  auto weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok());
  EXPECT_EQ(weights->entries().size(), 1u);
}

TEST(ModelWeights, TakesWhatTorchSavedWhereThereIsNothingElse) {
  const auto golden = [](const char* name) {
    return *ReadTextFile(PosixEnv(), std::string(kProjectFolder) + "/tests/format/torch/" + name + ".bin");
  };
  MemoryEnv env;
  env.files["m/training_args.bin"] = env.files["m/optimizer.pt"] = env.files["m/rng_state_0.pth"] = "no weights";
  EXPECT_EQ(WeightsFileIn(env, "m"), "");
  env.files["m/last.pt"] = golden("training_run");
  EXPECT_EQ(WeightsFileIn(env, "m"), "m/last.pt");
  auto weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_TRUE(weights->Find("1.bias").tensor);
  // Two, of which either could be it.
  env.files["m/best.pth"] = golden("training_run");
  EXPECT_EQ(WeightsFileIn(env, "m"), "");
  ExpectRefused(env, "m", StatusCode::kNotFound, {"'best.pth', 'last.pt'", "path of the file itself"});
  EXPECT_TRUE(ModelWeights::Open(env, "m/best.pth").ok());

  env.files["m/pytorch_model.bin.index.json"] =
      R"({"weight_map":{"1.bias":"pytorch_model-00001-of-00002.bin","a":"pytorch_model-00002-of-00002.bin"}})";
  ExpectRefused(env, "m", StatusCode::kNotFound, {"lacks 2 of the 2 shards", "'pytorch_model-00001-of-00002.bin'"});
  env.files["m/pytorch_model-00001-of-00002.bin"] = golden("training_run");
  env.files["m/pytorch_model-00002-of-00002.bin"] = golden("no_sums");
  weights = ModelWeights::Open(env, "m");
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->files().size(), 2u);
  std::vector<float> a(3);
  ASSERT_TRUE(weights->Find("a").ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(a))).ok());
  EXPECT_EQ(a, (std::vector<float>{-6.25, -1.625, 3}));
  env.files["m/pytorch_model.bin"] = golden("archive");
  EXPECT_EQ(WeightsFileIn(env, "m"), "m/pytorch_model.bin");
  ASSERT_TRUE(WriteModel(env, "m", {{"only", {DType::kF32, {1}}}}, 1000).ok());
  EXPECT_EQ(WeightsFileIn(env, "m"), "m/model.safetensors");

  env.files["a/adapter_model.bin"] = golden("sequence");
  EXPECT_TRUE(ModelWeights::Open(env, "a", WeightsKind::kAdapter).ok());
  ASSERT_TRUE(WriteModel(env, "a", {{"only", {DType::kF32, {1}}}}, 1000, "adapter_model").ok());
  EXPECT_EQ(WeightsFileIn(env, "a", WeightsKind::kAdapter), "a/adapter_model.safetensors");
}

TEST(ModelWeights, SaysWhyAFolderHasNoWeightsItCanRead) {
  MemoryEnv env;
  env.files["m/config.json"] = "{}";
  env.files["m/consolidated.safetensors"] = "";
  ExpectRefused(env, "m", StatusCode::kNotFound, {"'consolidated.safetensors'", "path of the file itself"});

  MemoryEnv adapter;
  adapter.files["a/adapter_config.json"] = "{}";
  adapter.files["a/training_args.bin"] = "";
  adapter.files["a/adapter_model.safetensors"] = "";
  ExpectRefused(adapter, "a", StatusCode::kNotFound, {"holds an adapter", "base model's folder"});
  adapter.files.erase("a/adapter_model.safetensors");
  ExpectRefused(adapter, "a", StatusCode::kNotFound, {"holds no weights", "adapter_model.safetensors"},
                WeightsKind::kAdapter);
  adapter.files["a/adapter_model.bin"] = "PK\x03\x04 and no more";
  ExpectRefused(adapter, "a", StatusCode::kCorrupt, {"a/adapter_model.bin", "zip archive"}, WeightsKind::kAdapter);

  MemoryEnv model = TwoShards();
  ExpectRefused(model, "m", StatusCode::kNotFound, {"a model's weights, not an adapter"}, WeightsKind::kAdapter);
  ExpectRefused(model, "nowhere", StatusCode::kNotFound, {"nowhere", "No such file"});
  MemoryEnv empty;
  empty.files["m/config.json"] = "{}";
  ExpectRefused(empty, "m", StatusCode::kNotFound,
                {"m holds no weights", "neither model.safetensors nor pytorch_model.bin"});
}

// A stack of gate above up, as the model has it, of which each matrix is a tensor here, in several shards.
TEST(ModelWeights, StacksMatricesThatAFolderHasInTensorsOfTheirOwn) {
  const std::vector<FileTensor> wanted = {
      {.name = "mlp.experts.gate_up_proj",
       .aliases = {"inside.mlp.experts.gate_up_proj"},
       .shape = {3, 4, 5},
       .matrices_as = {{"gate.weight", 3}, {"up.weight", 1}}},
      {.name = "mlp.experts.down_proj", .shape = {3, 5, 2}, .matrices_as = {{"down", 5}}},
      {.name = "norm", .shape = {5}}};
  std::vector<TensorDeclaration> stored = {{"norm", {DType::kF32, {5}}},
                                           {"mlp.experts.down_proj", {DType::kF32, {3, 5, 2}}}};
  const auto name = [](int i, const char* part) { return fmt::format("inside.mlp.experts.{}.{}.weight", i, part); };
  for (int i = 0; i < 3; ++i) {
    stored.push_back({name(i, "gate"), {DType::kF32, {3, 5}}});
    stored.push_back({name(i, "up"), {DType::kF32, {1, 5}}});
  }
  const ScratchFolder folder;
  ASSERT_TRUE(WriteModel(PosixEnv(), folder.path(), stored, 120).ok());
  auto weights = ModelWeights::Open(PosixEnv(), folder.path());
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  const Status stacked = weights->StackMatrices(wanted);
  ASSERT_TRUE(stacked.ok()) << stacked.message();
  ASSERT_EQ(weights->entries().size(), 3u) << "what lies in a stack is no tensor of its own";
  const ModelWeights::Entry stack = weights->Find("inside.mlp.experts.gate_up_proj");
  ASSERT_NE(stack.tensor, nullptr);
  EXPECT_EQ(*stack.tensor->type(), (TensorType{DType::kF32, {3, 4, 5}}));
  std::vector<std::byte> want, got(3 * 4 * 5 * 4);
  for (int i = 0; i < 3; ++i) {
    for (const auto& [part, rows] : {std::pair("gate", 3), {"up", 1}}) {
      const auto bytes = Content(name(i, part), int64_t{rows} * 5 * 4);
      want.insert(want.end(), bytes.begin(), bytes.end());
    }
  }
  ASSERT_TRUE(stack.ReadElementsAs(0, DType::kF32, got).ok());
  EXPECT_EQ(got, want);
  ASSERT_TRUE(
      stack.ReadElementsAs(17, DType::kF32, std::span(got).first(80)).ok());  // from the first's up to the second
  EXPECT_TRUE(std::equal(got.begin(), got.begin() + 80, want.begin() + 17 * 4));
}

TEST(ModelWeights, NamesTheMatrixForWhichAStackCannotBeMade) {
  const std::vector<FileTensor> wanted = {
      {.name = "experts.up", .shape = {2, 4, 5}, .matrices_as = {{"up.weight", 4}}}};
  const auto message = [&](const std::vector<TensorDeclaration>& stored) {
    const ScratchFolder folder;
    EXPECT_TRUE(WriteModel(PosixEnv(), folder.path(), stored, 1000).ok());
    auto weights = ModelWeights::Open(PosixEnv(), folder.path());
    return weights->StackMatrices(wanted).message();
  };
  const TensorDeclaration first = {"experts.0.up.weight", {DType::kF32, {4, 5}}};
  EXPECT_NE(message({first}).find("'experts.1.up.weight' is missing"), std::string::npos);
  for (const TensorType& type : {TensorType{DType::kF32, {4, 6}}, {DType::kF32, {5, 5}}, {DType::kBF16, {4, 5}}}) {
    EXPECT_NE(message({first, {"experts.1.up.weight", type}}).find("experts.1.up.weight"), std::string::npos);
  }
  EXPECT_NE(message({first, {"experts.1.up.weight", {DType::kF32, {3, 5}}}}).find("should be [4, 5]"),
            std::string::npos);
  EXPECT_EQ(message({{"experts.up", {DType::kF32, {2, 4, 5}}}}), "");
}

TEST(ModelWeights, OpensAnAdapterFolder) {
  MemoryEnv env;
  const std::string name = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.weight";
  ASSERT_TRUE(WriteModel(env, "a", {{name, {DType::kF32, {2, 4}}}}, 1000, "adapter_model").ok());
  auto weights = ModelWeights::Open(env, "a", WeightsKind::kAdapter);
  ASSERT_TRUE(weights.ok()) << weights.status().message();
  EXPECT_EQ(weights->Find(name).tensor->ToString(), "F32[2, 4]");
}

TEST(ShardedSafetensorsWriter, RefusesANameInTwoShards) {
  MemoryEnv env;
  const auto writer = ShardedSafetensorsWriter::Create(
      env, "m", {{"a", {DType::kF32, {2}}}, {"b", {DType::kF32, {2}}}, {"a", {DType::kF32, {2}}}}, {.max_shard = {8}});
  EXPECT_EQ(writer.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(writer.status().message().find("'a' would be written twice"), std::string::npos);
}

}  // namespace
}  // namespace temper::model_weights_test
