// Models that were exported to GGUF files and read back are the models that they were.
#include "run/gguf_folder.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/project_folder_for_test.h"
#include "checkpoint/sliced_weights.h"
#include "format/json.h"
#include "run/gguf_plan.h"

namespace temper::gguf_folder_test {
namespace {

const std::string kModels = std::string(kProjectFolder) + "/tests/parity/goldens/models/";

// A folder of its own, where caches go, too.
class GgufFolder : public ::testing::Test {
 protected:
  GgufFolder() {
    const char* const before = std::getenv("XDG_CACHE_HOME");
    if (before != nullptr) before_ = before;
    std::filesystem::remove_all(folder_);
    setenv("XDG_CACHE_HOME", (folder_ + "/cache").c_str(), 1);
  }
  ~GgufFolder() override {
    std::filesystem::remove_all(folder_);
    before_.empty() ? unsetenv("XDG_CACHE_HOME") : setenv("XDG_CACHE_HOME", before_.c_str(), 1);
  }

  // The exported file.
  std::string Export(const OpenedModel& model, const std::string& name, QuantMix mix) {
    auto spec = PlanGguf(PosixEnv(), model);
    EXPECT_TRUE(spec.ok()) << name << ": " << spec.status().message();
    if (!spec.ok()) return "";
    spec->source.output_dir = folder_ + "/" + name;
    spec->mix = mix;
    spec->file = "model.gguf";
    const auto report = ExportGguf(PosixEnv(), *std::move(spec));
    EXPECT_TRUE(report.ok()) << name << ": " << report.status().message();
    return folder_ + "/" + name + "/model.gguf";
  }

  const std::string folder_ =
      (std::filesystem::temp_directory_path() / ("gguf_folder_test." + std::to_string(getpid()))).string();
  std::string before_;
};

Result<OpenedModel> OpenModel(const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(OpenedModel model, OpenedModel::Open(PosixEnv(), {.model = path}));
  TEMPER_RETURN_IF_ERROR(model.OpenWeights());
  return model;
}

std::vector<float> NumbersOf(const OpenedModel& model, const FileTensor& tensor) {
  const ModelWeights::Entry entry = FindTensor(model.weights(), tensor);
  EXPECT_NE(entry.tensor, nullptr) << tensor.name;
  std::vector<float> x(static_cast<size_t>(tensor.shape.elements()));
  if (entry.tensor == nullptr) return x;
  const Status read = entry.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(x)));
  EXPECT_TRUE(read.ok()) << read.message();
  return x;
}

// `error`: of a number, relative to the tensor's largest.
void ExpectSameWeights(const OpenedModel& a, const OpenedModel& b, float error) {
  for (const FileTensor& tensor : FileTensorsOf(a.model().StoredWeights())) {
    const std::vector<float> x = NumbersOf(a, tensor), y = NumbersOf(b, tensor);
    float largest = 0, apart = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      largest = std::max(largest, std::abs(x[i]));
      apart = std::max(apart, std::abs(x[i] - y[i]));
    }
    EXPECT_LE(apart, error * largest) << tensor.name;
  }
}

TEST_F(GgufFolder, ModelsOfAllArchitecturesComeBackAsTheyWere) {
  for (const char* name :
       {"llama_gqa_tied", "llama_biases", "llama_head_dim", "llama_rope_linear", "mistral_no_window", "mixtral",
        "arcee", "qwen2_tied", "qwen2_moe", "qwen3", "qwen3_moe", "granite", "phi3_longrope"}) {
    SCOPED_TRACE(name);
    const auto before = OpenModel(kModels + name);
    ASSERT_TRUE(before.ok()) << before.status().message();
    const std::string file = Export(*before, name, QuantMix::kF32);
    const auto after = OpenModel(file);
    ASSERT_TRUE(after.ok()) << after.status().message();
    EXPECT_TRUE(before->model().Gguf()->metadata.pairs() == after->model().Gguf()->metadata.pairs());
    ExpectSameWeights(*before, *after, 0);
  }
}

TEST_F(GgufFolder, QuantisedWeightsComeBackWithinTheirSteps) {
  const auto before = OpenModel(kModels + "llama_gqa_tied");
  ASSERT_TRUE(before.ok());
  for (const QuantMix mix : {QuantMix::kF16, QuantMix::kBF16, QuantMix::kQ8_0}) {
    SCOPED_TRACE(NameOf(mix));
    const auto after = OpenModel(Export(*before, std::string(NameOf(mix)), mix));
    ASSERT_TRUE(after.ok()) << after.status().message();
    ExpectSameWeights(*before, *after,
                      mix == QuantMix::kF16    ? 0x1p-11f
                      : mix == QuantMix::kBF16 ? 0x1p-8f
                                               : 1 / 254.f + 0x1p-11f);
  }
}

TEST_F(GgufFolder, TheSameFileHasOneFolderAndAnotherFileAnother) {
  const auto model = OpenModel(kModels + "llama_gqa_tied");
  ASSERT_TRUE(model.ok());
  const std::string file = Export(*model, "a", QuantMix::kF32);
  const auto first = FolderOfGguf(PosixEnv(), file), again = FolderOfGguf(PosixEnv(), file);
  ASSERT_TRUE(first.ok() && again.ok()) << first.status().message();
  EXPECT_EQ(*first, *again);
  const auto other = FolderOfGguf(PosixEnv(), Export(*model, "b", QuantMix::kF32));
  ASSERT_TRUE(other.ok());
  EXPECT_NE(*first, *other);
  // A file that was changed is not read by the old map.
  std::filesystem::last_write_time(file, std::filesystem::last_write_time(file) + std::chrono::seconds(5));
  const auto stale = ModelWeights::Open(PosixEnv(), *first);
  ASSERT_FALSE(stale.ok());
  EXPECT_NE(stale.status().message().find("has changed"), std::string::npos) << stale.status().message();
  EXPECT_NE(*FolderOfGguf(PosixEnv(), file), *first);
}

TEST_F(GgufFolder, ManyAtOnceMakeOneFolder) {
  const auto model = OpenModel(kModels + "llama_gqa_tied");
  ASSERT_TRUE(model.ok());
  const std::string file = Export(*model, "a", QuantMix::kF32);
  std::vector<std::string> made(8);
  std::vector<std::thread> threads;
  for (std::string& one : made) {
    threads.emplace_back([&] {
      const auto folder = FolderOfGguf(PosixEnv(), file);
      one = folder.ok() ? *folder : folder.status().message();
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const std::string& one : made) EXPECT_EQ(one, made[0]);
  const auto all = PosixEnv().List(folder_ + "/cache/temper/gguf");
  ASSERT_TRUE(all.ok());
  EXPECT_EQ(*all, std::vector<std::string>{std::string(BaseName(made[0]))});
  // One that was damaged is made again.
  ASSERT_TRUE(PosixEnv().RemoveFile(made[0] + "/gguf_weights.json").ok());
  EXPECT_EQ(*FolderOfGguf(PosixEnv(), file), made[0]);
  EXPECT_TRUE(PosixEnv().IsFile(made[0] + "/gguf_weights.json"));
}

// `change` is made to the description of a tiny Llama, whose file must then be refused with `words`.
TEST_F(GgufFolder, WhatWouldBeComputedOtherwiseIsRefusedByName) {
  const auto model = OpenModel(kModels + "llama_gqa_tied");
  ASSERT_TRUE(model.ok());
  const auto expect = [&](const char* words, const std::function<void(GgufExportSpec&)>& change) {
    SCOPED_TRACE(words);
    auto spec = PlanGguf(PosixEnv(), *model);
    ASSERT_TRUE(spec.ok());
    spec->source.output_dir = folder_ + "/changed";
    spec->source.overwrite = true;
    spec->mix = QuantMix::kF32;
    spec->file = "model.gguf";
    change(*spec);
    ASSERT_TRUE(ExportGguf(PosixEnv(), *std::move(spec)).ok());
    const auto folder = FolderOfGguf(PosixEnv(), folder_ + "/changed/model.gguf");
    ASSERT_FALSE(folder.ok());
    EXPECT_NE(folder.status().message().find(words), std::string::npos) << folder.status().message();
  };
  expect("llama.attention.temperature is not known",
         [](GgufExportSpec& s) { s.metadata.Set("llama.attention.temperature", 2.f); });
  expect("llama.rope.scaling.type is not known", [](GgufExportSpec& s) {
    s.metadata.Set("llama.rope.scaling.type", std::string("dynamic"));
    s.model.metadata.Set("llama.rope.scaling.type", std::string("dynamic"));
  });
  expect("lacks the tensor 'blk.0.ffn_up.weight'", [](GgufExportSpec& s) {
    std::erase_if(s.model.tensors, [](const GgufTensor& t) { return t.name == "blk.0.ffn_up.weight"; });
  });
  expect("'extra.weight' is not of its architecture", [](GgufExportSpec& s) {
    s.model.tensors.push_back({.name = "extra.weight", .numbers = {1, 2}});
  });
  expect("'rope_freqs.weight' are none", [](GgufExportSpec& s) {
    s.model.tensors.push_back({.name = "rope_freqs.weight", .numbers = {1, 2, 3, 5}});
  });
  expect("architecture 'mamba' are not read", [](GgufExportSpec& s) { s.model.architecture = "mamba"; });
}

}  // namespace
}  // namespace temper::gguf_folder_test
