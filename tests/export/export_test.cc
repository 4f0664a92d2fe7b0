// temper export and adapters against PEFT's results and files (tests/parity/goldens).
#include "checkpoint/export.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <nlohmann/json.hpp>
#include <random>

#include "base/project_folder_for_test.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/companion_files.h"
#include "checkpoint/inspect.h"
#include "checkpoint/state_for_test.h"
#include "checkpoint/training_state.h"
#include "format/json.h"
#include "model/families.h"
#include "model/lora.h"
#include "model/model.h"
#include "model/row_selector.h"
#include "program/buffer_names.h"

namespace temper::export_test {
namespace {

const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens/";

std::string ModelFolder(const std::string& name) {
  return kGoldens + "models/" + name;
}

std::vector<std::string> AdapterCases() {
  std::vector<std::string> names;
  for (const std::string& name : Must(PosixEnv().List(kGoldens + "cases"))) {
    const Json info = Must(ReadJsonFile(PosixEnv(), kGoldens + "cases/" + name + "/case.json"));
    if (info["kind"] == "adapter") names.push_back(name);
  }
  return names;
}

std::unique_ptr<Model> OpenModel(const std::string& folder) {
  const std::string path = folder + "/config.json";
  return Must(ModelFromConfig(Must(ReadJsonFile(PosixEnv(), path)), path));
}

std::vector<LoraModule> ModulesOf(const Model& model, const LoraConfig& config) {
  return Must(ResolveLora(model.modules(), config));
}

ExportSpec SpecFor(const std::string& model, const std::string& adapter, const std::string& out) {
  ExportSpec spec{.source = {.model_folder = model, .adapter_folder = adapter}, .output_dir = out};
  const auto opened = OpenModel(model);
  spec.tensors = FileTensorsOf(opened->StoredWeights());
  const LinearModule& head = opened->modules().back();
  spec.head = head.path;
  for (const StoredWeight& w : opened->StoredWeights()) {
    if (w.name == head.weights.front()) spec.head_tensor = w.source.tensors().front().name;
  }
  spec.tied_keys = opened->facts().tied_keys;
  for (const LinearModule& module : opened->modules()) spec.tensors_of[module.path] = module.tensors;
  spec.keeps_others = opened->facts().keeps_other_tensors;
  spec.ignored = opened->facts().ignored;
  if (!adapter.empty()) {
    const LoraConfig config = Must(ReadLoraConfig(PosixEnv(), JoinPath(adapter, kAdapterConfigFile)));
    spec.modules = ModulesOf(*opened, config);
    spec.rows = Must(SelectRows(*opened, config, spec.modules, {}, kAdapterConfigFile));
  }
  return spec;
}

// The tensor that a module's weight is written to.
std::string TensorOf(const ExportSpec& spec, const LoraModule& module) {
  return spec.tensors_of.at(module.path).front();
}

std::vector<float> Floats(const ModelWeights& weights, const std::string& name) {
  const auto entry = Must(weights.Require(name));
  std::vector<float> x(static_cast<size_t>(entry.tensor->elements()));
  TEMPER_CHECK(entry.file->ReadAs(name, DType::kF32, std::as_writable_bytes(std::span(x))).ok());
  return x;
}

std::string RawBytes(const ModelWeights& weights, const std::string& name) {
  const auto entry = Must(weights.Require(name));
  std::string bytes(static_cast<size_t>(entry.tensor->bytes().v), '\0');
  TEMPER_CHECK(entry.file->ReadTensor(name, std::as_writable_bytes(std::span(bytes))).ok());
  return bytes;
}

std::vector<std::string> Names(const ModelWeights& weights) {
  std::vector<std::string> names;
  for (const auto& e : weights.entries()) names.push_back(e.tensor->name);
  return names;
}

TEST(Adapter, ReadsAllOfPeftsAdapters) {
  int adapters = 0;
  for (const std::string& name : AdapterCases()) {
    const Json info = Must(ReadJsonFile(PosixEnv(), kGoldens + "cases/" + name + "/case.json"));
    const std::string folder = kGoldens + "adapters/" + info["adapter"].get<std::string>();
    const auto model = OpenModel(ModelFolder(info["models"][0]));
    const LoraConfig config = Must(ReadLoraConfig(PosixEnv(), folder + "/adapter_config.json"));
    const auto modules = ModulesOf(*model, config);
    const auto rows = Must(SelectRows(*model, config, modules, {}, kAdapterConfigFile));
    const auto reader = AdapterReader::Open(PosixEnv(), folder, modules, {}, rows);
    ASSERT_TRUE(reader.ok()) << reader.status().message();
    std::vector<float> a(static_cast<size_t>(modules[0].r * modules[0].in));
    ASSERT_TRUE(reader->Read(LoraAName(modules[0].path), a).ok());
    EXPECT_EQ(a,
              Floats(Must(ModelWeights::Open(PosixEnv(), folder, WeightsKind::kAdapter)), LoraAName(modules[0].path)));
    // One module too many, one too few, another rank.
    auto wrong = modules;
    wrong.push_back({.path = "model.layers.9.mlp.up_proj", .in = 4, .out = 4, .r = 4, .scale = 1});
    EXPECT_EQ(AdapterReader::Open(PosixEnv(), folder, wrong, {}, rows).status().code(), StatusCode::kNotFound);
    wrong = modules;
    wrong.pop_back();
    EXPECT_EQ(AdapterReader::Open(PosixEnv(), folder, wrong, {}, rows).status().code(), StatusCode::kUnsupported);
    wrong = modules;
    ++wrong[0].r;
    EXPECT_EQ(AdapterReader::Open(PosixEnv(), folder, wrong, {}, rows).status().code(), StatusCode::kCorrupt);
    ++adapters;
  }
  EXPECT_GE(adapters, 10);
}

// |ours - PEFT's| <= twice the rounding of r products and sums in f32, the scaling and one addition. DoRA scales that,
// and rounds a norm of so many squares, its root, a quotient and a product.
TEST(Export, MergesLikePeft) {
  int compared = 0;
  for (const std::string& name : AdapterCases()) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const Json info = Must(ReadJsonFile(PosixEnv(), kGoldens + "cases/" + name + "/case.json"));
    const std::string folder = kGoldens + "adapters/" + info["adapter"].get<std::string>();
    const ExportSpec spec = SpecFor(ModelFolder(info["models"][0]), folder, scratch.path() + "/out");
    const auto report = ExportModel(PosixEnv(), spec);
    ASSERT_TRUE(report.ok()) << report.status().message();
    int64_t merged_tensors = 0;
    for (const LoraModule& m : spec.modules) {
      merged_tensors += m.matrices == 0 ? 1 : std::ssize(spec.tensors_of.at(m.path));
    }
    EXPECT_EQ(report->merged, merged_tensors + std::ssize(spec.rows));
    const ModelWeights ours = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
    const ModelWeights base = Must(ModelWeights::Open(PosixEnv(), spec.source.model_folder));
    const ModelWeights adapter = Must(ModelWeights::Open(PosixEnv(), folder, WeightsKind::kAdapter));
    const ModelWeights golden =
        Must(ModelWeights::Open(PosixEnv(), kGoldens + "cases/" + name + "/golden.safetensors"));
    EXPECT_EQ(Names(ours), Names(base));
    for (const LoraModule& m : spec.modules) {
      const std::string weight = TensorOf(spec, m), merged_by_peft = "merged." + m.path + ".weight";
      if (!golden.Find(merged_by_peft).tensor || m.matrices > 0) continue;
      ++compared;
      const auto w = Floats(base, weight), a = Floats(adapter, LoraAName(m.stored_path())),
                 b = Floats(adapter, LoraBName(m.stored_path()));
      const auto merged = Floats(ours, weight), expected = Floats(golden, merged_by_peft);
      const DType stored = *ours.Find(weight).tensor->dtype->dtype;
      EXPECT_NE(merged, w);
      for (int64_t i = 0; i < m.out; ++i) {
        for (int64_t j = 0; j < m.in; ++j) {
          const int64_t at = m.transposed ? j * m.out + i : i * m.in + j;
          double size = 0, sum = w[at];
          for (int64_t k = 0; k < m.r; ++k) {
            const double term = double{b[i * m.r + k]} * a[k * m.in + j];
            size += std::abs(term);
            sum += m.scale * term;
          }
          const double u = UnitRoundoff(DType::kF32), own = std::abs(w[at]);
          double bound = 2 * u * ((static_cast<double>(m.r) + 2) * m.scale * size + own);
          if (m.has_magnitudes) {
            bound *= std::abs(expected[at] / sum);
            bound += (static_cast<double>(m.in) / 2 + 6) * u * std::abs(expected[at]);
          }
          if (stored != DType::kF32) bound += UnitRoundoff(stored) * std::abs(expected[at]);
          ASSERT_LE(std::abs(double{merged[at]} - expected[at]), bound) << weight << " " << i << " " << j;
        }
      }
    }
    for (const std::string& tensor : Names(base)) {
      const bool adapted = std::any_of(spec.modules.begin(), spec.modules.end(), [&](const LoraModule& m) {
        const auto& names = spec.tensors_of.at(m.path);
        return m.matrices == 0 ? TensorOf(spec, m) == tensor : std::count(names.begin(), names.end(), tensor) > 0;
      });
      const auto rows = std::find_if(spec.rows.begin(), spec.rows.end(),
                                     [&](const TrainedRows& some) { return some.tensor == tensor; });
      const std::string got = RawBytes(ours, tensor);
      std::string left = RawBytes(base, tensor);
      if (rows != spec.rows.end()) {  // the others are left
        const size_t row_bytes = left.size() / static_cast<size_t>(rows->vocabulary);
        for (const int64_t row : rows->rows) {
          const size_t at = static_cast<size_t>(row) * row_bytes;
          EXPECT_NE(got.substr(at, row_bytes), left.substr(at, row_bytes)) << tensor << " row " << row;
          left.replace(at, row_bytes, got, at, row_bytes);
        }
      }
      EXPECT_TRUE(adapted || got == left) << tensor;
    }
  }
  EXPECT_GE(compared, 15);
}

// Column k * experts + e of B and row e * r + k of A belong to expert e.
TEST(Export, MergesTheAdaptersOfExpertsLikePeft) {
  int compared = 0;
  for (const std::string name :
       {"lora_mixtral", "lora_olmoe_down", "lora_qwen2_moe", "lora_qwen3_moe_mixed", "lora_gpt_oss", "lora_qwen3_5_moe",
        "lora_qwen3_next", "lora_granite_hybrid_experts"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const Json info = Must(ReadJsonFile(PosixEnv(), kGoldens + "cases/" + name + "/case.json"));
    const ExportSpec spec =
        SpecFor(ModelFolder(info["models"][0]), kGoldens + "adapters/" + name, scratch.path() + "/out");
    ASSERT_TRUE(ExportModel(PosixEnv(), spec).ok());
    const ModelWeights ours = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
    const ModelWeights base = Must(ModelWeights::Open(PosixEnv(), spec.source.model_folder));
    const ModelWeights adapter =
        Must(ModelWeights::Open(PosixEnv(), spec.source.adapter_folder, WeightsKind::kAdapter));
    const ModelWeights golden =
        Must(ModelWeights::Open(PosixEnv(), kGoldens + "cases/" + name + "/golden.safetensors"));
    for (const LoraModule& m : spec.modules) {
      if (m.matrices == 0) continue;
      const auto a = Floats(adapter, LoraAName(m.stored_path())), b = Floats(adapter, LoraBName(m.stored_path()));
      const std::vector<std::string>& tensors = spec.tensors_of.at(m.path);
      int64_t first = 0;
      for (size_t part = 0; part < m.parts.size(); first += m.parts[part].rows, ++part) {
        for (int64_t e = 0; e < m.matrices; ++e) {
          // A tensor of each matrix, or one that stacks them, each in x out or out x in.
          const bool stacked = tensors.size() == 1;
          const std::string& tensor =
              stacked ? tensors[0] : tensors[part * static_cast<size_t>(m.matrices) + static_cast<size_t>(e)];
          if (!golden.Find("merged." + tensor).tensor) continue;
          ++compared;
          const auto w = Floats(base, tensor), merged = Floats(ours, tensor);
          const auto expected = Floats(golden, "merged." + tensor);
          EXPECT_NE(merged, w);
          const DType stored = *ours.Find(tensor).tensor->dtype->dtype;
          for (int64_t i = 0; i < m.parts[part].rows; ++i) {
            for (int64_t j = 0; j < m.in; ++j) {
              double size = 0;
              for (int64_t k = 0; k < m.r; ++k) {
                size += std::abs(double{b[(first + i) * m.ranks() + k * m.matrices + e]} * a[(e * m.r + k) * m.in + j]);
              }
              const int64_t at = !stacked       ? i * m.in + j
                                 : m.transposed ? (e * m.in + j) * m.out + i
                                                : (e * m.out + first + i) * m.in + j;
              const double u = UnitRoundoff(DType::kF32), own = std::abs(w[at]);
              double bound = 2 * u * ((static_cast<double>(m.r) + 2) * m.scale * size + own);
              if (stored != DType::kF32) bound += UnitRoundoff(stored) * std::abs(expected[at]);
              ASSERT_LE(std::abs(double{merged[at]} - expected[at]), bound) << tensor << " " << i << " " << j;
            }
          }
        }
      }
    }
  }
  // Of the second expert of the second block; where files stack experts, all four of each parameter.
  EXPECT_EQ(compared, 3 + 1 + 2 + 3 + 8 + 12 + 1 + 8);
}

TEST(Export, RoundsOnce) {
  const ScratchFolder scratch;
  const std::string adapter = kGoldens + "adapters/lora_llama_all_linear";
  const std::string base = Must(ReadLoraConfig(PosixEnv(), adapter + "/adapter_config.json")).base_model;
  const std::string folder = ModelFolder(BaseName(base));
  ExportSpec spec = SpecFor(folder, adapter, scratch.path() + "/f32");
  ASSERT_TRUE(ExportModel(PosixEnv(), spec).ok());
  for (const DType dtype : {DType::kBF16, DType::kF16}) {
    spec.output_dir = scratch.path() + "/" + std::string(ToString(dtype));
    spec.dtype = dtype;
    ASSERT_TRUE(ExportModel(PosixEnv(), spec).ok());
    const ModelWeights wide = Must(ModelWeights::Open(PosixEnv(), scratch.path() + "/f32"));
    const ModelWeights narrow = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
    for (const std::string& name : Names(wide)) {
      const auto x = Floats(wide, name), y = Floats(narrow, name);
      EXPECT_EQ(narrow.Find(name).tensor->dtype->dtype, dtype);
      for (size_t i = 0; i < x.size(); ++i) {
        ASSERT_EQ(y[i], dtype == DType::kBF16 ? ToFloat(ToBF16(x[i])) : ToFloat(ToF16(x[i]))) << name << " " << i;
      }
    }
    const Json config = Must(ReadJsonFile(PosixEnv(), spec.output_dir + "/config.json"));
    EXPECT_EQ(config.contains("dtype") ? config["dtype"] : config["torch_dtype"],
              dtype == DType::kBF16 ? "bfloat16" : "float16");
  }
}

TEST(Export, NumbersThatOnlyPythonWritesStayInTheConfiguration) {
  const ScratchFolder scratch;
  const std::string base = ModelFolder("llama_mha"), model = scratch.path() + "/model";
  ASSERT_TRUE(PosixEnv().CreateFolders(model).ok());
  for (const std::string& file : Must(PosixEnv().List(base))) Spill(model + "/" + file, Slurp(base + "/" + file));
  const std::string config = Slurp(base + "/config.json");
  Spill(model + "/config.json", "{\"time_step_limit\": [0.0, Infinity]," + config.substr(config.find('{') + 1));
  ExportSpec spec = SpecFor(base, "", scratch.path() + "/out");
  spec.source.model_folder = model;
  spec.dtype = DType::kF16;
  const auto report = ExportModel(PosixEnv(), spec);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const std::string written = Slurp(spec.output_dir + "/config.json");
  EXPECT_NE(written.find("0.0,\n    Infinity\n"), std::string::npos) << written;
  EXPECT_NE(written.find("float16"), std::string::npos) << written;
  EXPECT_TRUE(Inspect(PosixEnv(), spec.output_dir, {}, [](std::string_view) {}).ok());
}

TEST(Export, CompanionFilesCanBeReplacedAndOmitted) {
  const std::string name = Must(PosixEnv().List(kGoldens + "models")).front();
  const ScratchFolder scratch;
  const std::string model = scratch.path() + "/model";
  ASSERT_TRUE(PosixEnv().CreateFolders(model).ok());
  for (const std::string& file : Must(PosixEnv().List(ModelFolder(name)))) {
    Spill(model + "/" + file, Slurp(ModelFolder(name) + "/" + file));
  }
  for (const char* file : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model"})
    Spill(model + "/" + file, file);
  ExportSpec spec = SpecFor(model, "", scratch.path() + "/out");
  spec.overwrite = true;
  ASSERT_TRUE(ExportModel(PosixEnv(), spec).ok());
  spec.replaced = {{"tokenizer_config.json", "other"}, {"tokenizer.json", std::nullopt}};
  const auto report = ExportModel(PosixEnv(), spec);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_EQ(Slurp(spec.output_dir + "/tokenizer_config.json"), "other");
  EXPECT_EQ(Slurp(spec.output_dir + "/tokenizer.model"), "tokenizer.model");
  EXPECT_FALSE(PosixEnv().IsFile(spec.output_dir + "/tokenizer.json"));  // the first export's file is gone, too
  EXPECT_EQ(std::count(report->files.begin(), report->files.end(), "tokenizer.json"), 0);
}

TEST(Export, WithoutAnAdapterIsACopy) {
  for (const std::string& name : Must(PosixEnv().List(kGoldens + "models"))) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string model = scratch.path() + "/model";
    ASSERT_TRUE(PosixEnv().CreateFolders(model).ok());
    for (const std::string& file : Must(PosixEnv().List(ModelFolder(name)))) {
      Spill(model + "/" + file, Slurp(ModelFolder(name) + "/" + file));
    }
    for (const char* file : {"tokenizer.json", "tokenizer_config.json", "tokenizer.model", "generation_config.json",
                             "chat_template.jinja", "special_tokens_map.json"}) {
      Spill(model + "/" + file, std::string("bytes of ") + file + '\0' + "\n");
    }
    Spill(model + "/pytorch_model.bin", "no");
    const ExportSpec spec = SpecFor(model, "", scratch.path() + "/out");
    const auto report = ExportModel(PosixEnv(), spec);
    ASSERT_TRUE(report.ok()) << report.status().message();
    for (const std::string& file : Must(CompanionFiles(PosixEnv(), model))) {
      EXPECT_TRUE(Slurp(model + "/" + file) == Slurp(spec.output_dir + "/" + file)) << file;
    }
    EXPECT_FALSE(PosixEnv().IsFile(spec.output_dir + "/pytorch_model.bin"));
    // What has a tensor per expert, and is published with stacks of them, becomes the published form.
    const bool stacks = name.ends_with("_each");
    const std::string form = stacks ? ModelFolder(name.substr(0, name.rfind('_'))) : model;
    const ModelWeights before = Must(ModelWeights::Open(PosixEnv(), form));
    const ModelWeights after = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
    const auto is_ignored = [&](const std::string& tensor) {
      return std::any_of(spec.ignored.begin(), spec.ignored.end(),
                         [&](const std::string& end) { return tensor.ends_with(end); });
    };
    const std::vector<std::string> stored = Names(before);
    EXPECT_EQ(std::ssize(after.entries()),
              std::count_if(stored.begin(), stored.end(), [&](const std::string& t) { return !is_ignored(t); }));
    for (const std::string& tensor : Names(after)) {
      // A tied model that stores only the head is written under the embedding's name.
      const std::string from = before.Find(tensor).tensor ? tensor : "lm_head.weight";
      EXPECT_TRUE(RawBytes(after, tensor) == RawBytes(before, from)) << tensor;
    }
    EXPECT_TRUE(Inspect(PosixEnv(), spec.output_dir, {}, [](std::string_view) {}).ok());
  }
}

TEST(Export, ShardsAreWrittenAndFound) {
  const ScratchFolder scratch;
  ExportSpec spec = SpecFor(ModelFolder("llama_mha"), "", scratch.path() + "/out");
  spec.max_shard = KiB(32);
  const auto report = ExportModel(PosixEnv(), spec);
  ASSERT_TRUE(report.ok()) << report.status().message();
  EXPECT_TRUE(PosixEnv().IsFile(spec.output_dir + "/model.safetensors.index.json"));
  const ModelWeights base = Must(ModelWeights::Open(PosixEnv(), ModelFolder("llama_mha")));
  const ModelWeights ours = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
  EXPECT_GT(ours.files().size(), 2u);
  for (const std::string& tensor : Names(base)) EXPECT_TRUE(RawBytes(ours, tensor) == RawBytes(base, tensor)) << tensor;
  // One file over the shards: no shard may remain, or transformers would take them for the model.
  spec.max_shard = GiB(1);
  EXPECT_EQ(ExportModel(PosixEnv(), spec).status().code(), StatusCode::kInvalidArgument) << "not empty";
  Spill(spec.output_dir + "/notes.txt", "mine");
  spec.overwrite = true;
  ASSERT_TRUE(ExportModel(PosixEnv(), spec).ok());
  const auto names = Must(PosixEnv().List(spec.output_dir));
  EXPECT_EQ(names, (std::vector<std::string>{"checksums.xxh3", "config.json", "model.safetensors", "notes.txt"}));
}

// LoRA on the head of a model that ties it to its embeddings: only one of the two may change.
TEST(Export, AdaptedTiedHeadIsUntied) {
  for (const std::string name : {"llama_gqa_tied", "llama_gqa_tied_bf16_lm_head", "opt_pre_norm", "mistral3_tied"}) {
    SCOPED_TRACE(name);
    const ScratchFolder scratch;
    const std::string folder = ModelFolder(name), adapter = scratch.path() + "/adapter";
    const LoraConfig config{
        .r = 3, .alpha = 6, .target_modules = std::vector<std::string>{"lm_head"}, .base_model = folder};
    const auto modules = ModulesOf(*OpenModel(folder), config);
    ASSERT_EQ(modules.size(), 1u);
    const LoraModule m = modules[0];
    std::mt19937 random(3);
    std::normal_distribution<float> normal;
    std::vector<float> a(static_cast<size_t>(m.r * m.in)), b(static_cast<size_t>(m.out * m.r));
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    const std::vector<NamedView> views = {
        {LoraAName("lm_head"), {reinterpret_cast<std::byte*>(a.data()), {DType::kF32, {m.r, m.in}}}},
        {LoraBName("lm_head"), {reinterpret_cast<std::byte*>(b.data()), {DType::kF32, {m.out, m.r}}}}};
    ASSERT_TRUE(WriteAdapter(PosixEnv(), adapter, config, views).ok());
    const ExportSpec spec = SpecFor(folder, adapter, scratch.path() + "/out");
    const auto report = ExportModel(PosixEnv(), spec);
    ASSERT_TRUE(report.ok()) << report.status().message();
    EXPECT_EQ(report->notices.size(), name == "mistral3_tied" ? 2u : 1u);  // what is kept beside the text model
    const ModelWeights base = Must(ModelWeights::Open(PosixEnv(), folder));
    const ModelWeights ours = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
    const std::string inside = name == "mistral3_tied" ? "language_model." : "", head_name = inside + "lm_head.weight";
    const std::string table =
        inside + (name.starts_with("opt") ? "model.decoder.embed_tokens.weight" : "model.embed_tokens.weight");
    const std::string stored = base.Find(table).tensor ? table : "lm_head.weight";
    EXPECT_TRUE(RawBytes(ours, table) == RawBytes(base, stored));
    const auto w = Floats(base, stored), head = Floats(ours, head_name);
    const DType dtype = *ours.Find(head_name).tensor->dtype->dtype;
    for (int64_t i = 0; i < m.out; ++i) {
      for (int64_t j = 0; j < m.in; ++j) {
        double exact = w[i * m.in + j], size = std::abs(exact);
        for (int64_t k = 0; k < m.r; ++k) {
          const double product = m.scale * b[i * m.r + k] * a[k * m.in + j];
          exact += product;
          size += std::abs(product);
        }
        const double bound =
            UnitRoundoff(DType::kF32) * 5 * size + UnitRoundoff(dtype) * (std::abs(exact) + 1e-5 * size);
        ASSERT_LE(std::abs(head[i * m.in + j] - exact), bound);
      }
    }
    Json config_before = Must(ReadJsonFile(PosixEnv(), folder + "/config.json"));
    const Json config_after = Must(ReadJsonFile(PosixEnv(), spec.output_dir + "/config.json"));
    EXPECT_EQ(config_after["tie_word_embeddings"], false);
    config_before["tie_word_embeddings"] = false;
    if (config_before.contains("text_config")) config_before["text_config"]["tie_word_embeddings"] = false;
    EXPECT_EQ(config_after, config_before);
    EXPECT_TRUE(Inspect(PosixEnv(), adapter, {}, [](std::string_view) {}).ok());
  }
}

// A full checkpoint is a model folder; its masters are rounded once to the type that its config.json names.
TEST(Export, AFullCheckpointIsRoundedToItsConfiguration) {
  const ScratchFolder scratch;
  const std::string base = ModelFolder("llama_gqa_tied_bf16"), out = scratch.path() + "/run";
  ASSERT_TRUE(PrepareOutputFolder(PosixEnv(), out, KiB(1)).ok());
  const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), base));
  const std::unique_ptr<Model> model = OpenModel(base);
  Program program;
  std::map<std::string, std::vector<std::byte>> memory;
  for (const WeightDeclaration& w : model->weights()) {
    const TensorType f32{DType::kF32, w.shape};
    program.buffers.push_back({w.name, {DType::kBF16, w.shape}, Role::kWeight, true});
    for (const std::string& name : {MasterName(w.name), "adam_m:" + w.name, "adam_v:" + w.name}) {
      program.buffers.push_back({name, f32, Role::kOptimizerState});
    }
  }
  uint64_t x = 1;
  for (const Buffer& b : program.buffers) {
    auto& bytes = memory[b.name];
    bytes.resize(static_cast<size_t>(b.type.bytes().v));
    if (b.type.dtype != DType::kF32) continue;
    for (size_t i = 0; i < bytes.size(); i += 4) {
      const float value = static_cast<float>(static_cast<int64_t>(x = x * 6364136223846793005u + 1)) * 0x1p-64f;
      std::memcpy(&bytes[i], &value, 4);
    }
  }
  const BufferLookup lookup = [&](const std::string& name) {
    return View{memory.at(name).data(), program.buffers[static_cast<size_t>(program.FindBuffer(name))].type};
  };
  CheckpointContents contents{.kind = CheckpointKind::kFull};
  contents.tensors = TrainingState(program, lookup);
  contents.copies = {{"config.json", base + "/config.json"}};
  CheckpointWriter writer(PosixEnv(), {out, {}});
  ASSERT_TRUE(writer.Start(contents).ok());
  ASSERT_TRUE(writer.Finish().ok());

  const auto source = ResolveModelSource(PosixEnv(), {.model = out});
  ASSERT_TRUE(source.ok()) << source.status().message();
  EXPECT_TRUE(source->model_is_checkpoint);
  EXPECT_EQ(source->notices.size(), 1u);
  ExportSpec spec = SpecFor(source->model_folder, "", scratch.path() + "/out");
  spec.source = *source;
  const auto report = ExportModel(PosixEnv(), spec);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const ModelWeights ours = Must(ModelWeights::Open(PosixEnv(), spec.output_dir));
  EXPECT_EQ(Names(ours), Names(files));
  for (const WeightDeclaration& w : model->weights()) {
    EXPECT_EQ(ours.Find(w.name).tensor->dtype->dtype, DType::kBF16);
    const auto rounded = Floats(ours, w.name);
    const std::span<float> master = lookup(MasterName(w.name)).part.view.as<float>();
    for (size_t i = 0; i < rounded.size(); ++i) ASSERT_EQ(rounded[i], ToFloat(ToBF16(master[i])));
  }
  EXPECT_TRUE(Slurp(base + "/config.json") == Slurp(spec.output_dir + "/config.json"));
}

TEST(Export, RefusesToOverwriteOtherFiles) {
  const ScratchFolder scratch;
  ExportSpec spec = SpecFor(ModelFolder("llama_mha"), "", ModelFolder("llama_mha"));
  spec.overwrite = true;
  const auto onto_itself = ExportModel(PosixEnv(), spec);
  EXPECT_EQ(onto_itself.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(onto_itself.status().message().find("is the folder being exported"), std::string::npos);
  spec.output_dir = scratch.path() + "/out";
  spec.tensors.push_back({"model.layers.99.mlp.up_proj.weight", {}});
  EXPECT_EQ(ExportModel(PosixEnv(), spec).status().code(), StatusCode::kNotFound);
  EXPECT_FALSE(PosixEnv().IsFolder(spec.output_dir)) << "nothing is written before all checks";
}

}  // namespace
}  // namespace temper::export_test
