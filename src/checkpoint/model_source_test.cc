#include "checkpoint/model_source.h"

#include <gtest/gtest.h>

#include "checkpoint/manifest.h"
#include "format/lora_config.h"
#include "format/memory_env_for_test.h"

namespace temper::model_source_test {
namespace {

class ModelSourceTest : public testing::Test {
 protected:
  void AddModel(const std::string& folder) {
    env_.files[folder + "/config.json"] = "{}";
    env_.files[folder + "/model.safetensors"] = "x";
  }
  void AddAdapter(const std::string& folder, const std::string& base) {
    env_.files[folder + "/adapter_config.json"] =
        FormatLoraConfig({.target_modules = std::vector<std::string>{"q_proj"}, .base_model = base});
    env_.files[folder + "/adapter_model.safetensors"] = "x";
  }
  void AddManifest(const std::string& folder) { env_.files[folder + "/manifest.json"] = FormatManifest({}); }

  ModelSource Resolve(const std::string& model, const std::string& base = "") {
    auto source = ResolveModelSource(env_, {.model = model, .base = base});
    EXPECT_TRUE(source.ok()) << source.status().message();
    return source.ok() ? *source : ModelSource();
  }
  std::string Error(const std::string& model, const std::string& base = "") {
    const auto source = ResolveModelSource(env_, {.model = model, .base = base});
    return source.ok() ? "OK" : source.status().message();
  }
  MemoryEnv env_;
};

bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

TEST_F(ModelSourceTest, AModelFolderIsItself) {
  AddModel("m");
  EXPECT_EQ(Resolve("m").model_folder, "m");
  EXPECT_FALSE(Resolve("m").model_is_checkpoint);
  EXPECT_TRUE(Contains(Error("m", "b"), "--model m is a model itself, not an adapter that could go on top of b"));
}

TEST_F(ModelSourceTest, AnErrorNamesTheOptionThatWasGiven) {
  AddModel("m");
  const auto message = [&](const std::string& adapter) {
    const auto source = ResolveModelSource(env_, {.model = adapter, .option = "--adapter", .base = "b"});
    return source.ok() ? "OK" : source.status().message();
  };
  EXPECT_TRUE(Contains(message("m"), "--adapter m is a model itself")) << message("m");
  EXPECT_TRUE(Contains(message("nowhere"), "--adapter nowhere: there is no such folder")) << message("nowhere");
}

TEST_F(ModelSourceTest, AnAdaptersBaseIsFoundHereOrBesideIt) {
  AddModel("models/tiny");
  AddAdapter("a", "models/tiny");
  EXPECT_EQ(Resolve("a").model_folder, "models/tiny");
  EXPECT_EQ(Resolve("a").adapter_folder, "a");
  AddModel("runs/base");
  AddAdapter("runs/x", "base");
  EXPECT_EQ(Resolve("runs/x").model_folder, "runs/base");
  AddModel("/abs/base");
  AddAdapter("y", "/abs/base");
  EXPECT_EQ(Resolve("y").model_folder, "/abs/base");
  EXPECT_EQ(Resolve("y", "models/tiny").model_folder, "models/tiny") << "--base wins";
}

TEST_F(ModelSourceTest, AMissingBaseIsExplained) {
  AddAdapter("a", "meta-llama/Llama-3.1-8B");
  const std::string hub = Error("a");
  EXPECT_TRUE(Contains(hub, "hf download meta-llama/Llama-3.1-8B")) << hub;
  EXPECT_TRUE(Contains(hub, "a/meta-llama/Llama-3.1-8B")) << "what was looked for: " << hub;
  AddAdapter("b", "/gone/model");
  EXPECT_TRUE(Contains(Error("b"), "'/gone/model', which is not here")) << Error("b");
  AddAdapter("c", "");
  EXPECT_TRUE(Contains(Error("c"), "give --base FOLDER")) << Error("c");
  EXPECT_TRUE(Contains(Error("a", "nowhere"), "--base nowhere")) << Error("a", "nowhere");
}

TEST_F(ModelSourceTest, AnAdapterOnAnAdapterIsRefused) {
  AddModel("m");
  AddAdapter("a", "m");
  AddAdapter("b", "a");
  EXPECT_TRUE(Contains(Error("b"), "temper export --model a")) << Error("b");
  AddAdapter("self", "self");
  EXPECT_TRUE(Contains(Error("self"), "itself an adapter")) << Error("self");
}

TEST_F(ModelSourceTest, AnOutputFolderGivesItsResultOrItsNewestCheckpoint) {
  AddModel("m");
  for (const char* step : {"9", "10"}) {
    AddAdapter(std::string("out/checkpoint-") + step, "m");
    AddManifest(std::string("out/checkpoint-") + step);
  }
  AddAdapter("out/checkpoint-11.tmp", "m");
  AddAdapter("out/checkpoint-12", "m");  // not committed
  ModelSource source = Resolve("out");
  EXPECT_EQ(source.adapter_folder, "out/checkpoint-10");
  EXPECT_EQ(source.checkpoint, "out/checkpoint-10");
  EXPECT_EQ(source.notices.size(), 1u);
  EXPECT_EQ(Resolve("out/checkpoint-9").adapter_folder, "out/checkpoint-9");
  EXPECT_TRUE(Contains(Error("out/checkpoint-11.tmp"), "interrupted"));
  AddAdapter("out", "m");
  source = Resolve("out");
  EXPECT_EQ(source.adapter_folder, "out");
  EXPECT_EQ(source.checkpoint, "");
  EXPECT_TRUE(source.notices.empty());
}

TEST_F(ModelSourceTest, WeightsOfAFullRunAreKnownAsMasters) {
  AddModel("out/checkpoint-5");
  AddManifest("out/checkpoint-5");
  EXPECT_TRUE(Resolve("out").model_is_checkpoint);
  EXPECT_EQ(Resolve("out").checkpoint, "out/checkpoint-5");
  AddModel("out");  // the finished run's
  EXPECT_EQ(Resolve("out").model_folder, "out");
  EXPECT_TRUE(Resolve("out").model_is_checkpoint);
  AddAdapter("a", "out/checkpoint-5");
  EXPECT_EQ(Resolve("a").model_folder, "out/checkpoint-5");
  EXPECT_TRUE(Resolve("a").model_is_checkpoint);
}

TEST_F(ModelSourceTest, ADamagedManifestIsAnError) {
  AddModel("out/checkpoint-5");
  env_.files["out/checkpoint-5/manifest.json"] = "{}";
  EXPECT_TRUE(Contains(Error("out/checkpoint-5"), "manifest"));
}

TEST_F(ModelSourceTest, WhatIsNotThereIsExplained) {
  EXPECT_TRUE(Contains(Error("meta-llama/Llama-3.1-8B"), "hf download")) << Error("meta-llama/Llama-3.1-8B");
  EXPECT_FALSE(Contains(Error("/no/such"), "hf download"));
  EXPECT_FALSE(Contains(Error("./x/y"), "hf download"));
  env_.files["f/model.gguf"] = "x";
  EXPECT_TRUE(Contains(Error("f/model.gguf"), "is a file"));
  EXPECT_TRUE(Contains(Error("f"), "looked for config.json")) << Error("f");
  EXPECT_NE(Error(""), "OK");
}

// A cache in memory. Its layout: format/hub_cache_test.cc.
TEST_F(ModelSourceTest, ANameIsFoundInTheCacheUnlessAFolderHasIt) {
  setenv("HF_HUB_CACHE", "/hub", 1);
  const std::string commit(40, 'c'), other(40, 'd');
  const std::string snapshots = "/hub/models--org--m/snapshots/";
  env_.files["/hub/models--org--m/refs/main"] = commit;
  env_.files["/hub/models--org--m/refs/v2"] = other;
  AddModel(snapshots + commit);
  AddModel(snapshots + other);
  EXPECT_EQ(Resolve("org/m").model_folder, snapshots + commit);
  EXPECT_EQ(Resolve("org/m@v2").model_folder, snapshots + other);
  EXPECT_EQ(Resolve("org/m@v2").hub_model->repository, "org/m");
  EXPECT_EQ(Resolve("org/m@v2").hub_model->revision, "v2");
  EXPECT_TRUE(
      Contains(Error("org/m@v3"), "--model org/m@v3: /hub/models--org--m has no revision 'v3' (it has main, v2)"));
  // As PEFT writes it.
  AddAdapter("a", "org/m");
  EXPECT_EQ(Resolve("a").model_folder, snapshots + commit);
  EXPECT_EQ(Resolve("a").hub_model->repository, "org/m");
  env_.files["b/adapter_config.json"] = FormatLoraConfig(
      {.target_modules = std::vector<std::string>{"q_proj"}, .base_model = "org/m", .base_revision = "v2"});
  EXPECT_EQ(Resolve("b").model_folder, snapshots + other);
  // An adapter may lie in the cache, too.
  env_.files["/hub/models--org--a/refs/main"] = commit;
  AddAdapter("/hub/models--org--a/snapshots/" + commit, "org/m");
  EXPECT_EQ(Resolve("org/a").model_folder, snapshots + commit);
  EXPECT_EQ(Resolve("org/a").hub_model->repository, "org/m");
  AddModel("org/m");
  EXPECT_EQ(Resolve("org/m").model_folder, "org/m");
  EXPECT_FALSE(Resolve("org/m").hub_model);
  EXPECT_EQ(Resolve("a").model_folder, "org/m");
  unsetenv("HF_HUB_CACHE");
}

TEST_F(ModelSourceTest, AConfigurationIsEnoughWhereWeightsAreNotNeeded) {
  env_.files["m/config.json"] = "{}";
  EXPECT_EQ(ResolveModelSource(env_, {.model = "m", .needs_weights = false})->model_folder, "m");
  // Resolved all the same otherwise: the reader of weights knows best why there are none (pickles, missing shards).
  EXPECT_EQ(Resolve("m").model_folder, "m");
}

}  // namespace
}  // namespace temper::model_source_test
