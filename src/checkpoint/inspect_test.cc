#include "checkpoint/inspect.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "checkpoint/adapter.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/state_for_test.h"
#include "format/safetensors_writer.h"

namespace temper::inspect_test {
namespace {

struct Outcome {
  Status status;
  std::string text;
};
Outcome Look(const std::string& path, const InspectOptions& options = {}) {
  Outcome o;
  o.status = Inspect(PosixEnv(), path, options, [&](std::string_view line) { o.text.append(line) += '\n'; });
  return o;
}
bool Contains(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

// A committed LoRA checkpoint with a real adapter in it.
std::string SaveAdapterCheckpoint(const std::string& out) {
  static float a[2 * 3], b[4 * 2], moments[6];
  CheckpointContents contents;
  const auto add = [&](const std::string& name, float* data, Shape shape, const char* file) {
    contents.tensors.push_back({name, View{reinterpret_cast<std::byte*>(data), {DType::kF32, shape}}, file, name});
  };
  for (const std::string module : {"model.layers.0.q_proj", "model.layers.1.q_proj"}) {
    add(LoraAName(module), a, {2, 3}, kAdapterWeightsFile);
    add(LoraBName(module), b, {4, 2}, kAdapterWeightsFile);
    add("adam_m:" + LoraAName(module), moments, {2, 3}, "state.safetensors");
  }
  contents.texts = {
      {kAdapterConfigFile,
       FormatLoraConfig({.r = 2, .target_modules = std::vector<std::string>{"q_proj"}, .base_model = "base"})}};
  contents.state = {.step = 5, .total_steps = 9};
  CheckpointWriter writer(PosixEnv(), {out, {}});
  TEMPER_CHECK(writer.Start(contents).ok() && writer.Finish().ok());
  return CheckpointFolder(out, 5);
}

TEST(Inspect, ShowsACheckpointAndItsAdapter) {
  const ScratchFolder out;
  const std::string folder = SaveAdapterCheckpoint(out.path());
  const Outcome o = Look(folder);
  EXPECT_TRUE(o.status.ok()) << o.status.message();
  EXPECT_TRUE(Contains(o.text, "lora checkpoint at step 5 of 9")) << o.text;
  EXPECT_TRUE(Contains(o.text, "model.layers.*.q_proj.lora_A.weight  2 x f32[2, 3]")) << o.text;
  EXPECT_TRUE(Contains(o.text, "2 adapted modules")) << o.text;
  EXPECT_TRUE(Contains(Look(folder, {.list_tensors = true}).text, "model.layers.1.q_proj.lora_B.weight  f32[4, 2]"));
  EXPECT_TRUE(Look(out.path()).status.ok());
}

TEST(Inspect, FitsAScreenUnlessAskedForAll) {
  const ScratchFolder out;
  std::vector<TensorDeclaration> tensors;
  // Of 40 kinds, most of them of the same size, the largest are shown.
  for (int i = 0; i < 40; ++i) tensors.push_back({fmt::format("kind{:02}", i), {DType::kF32, {i < 39 ? 7 : 8}}});
  const std::string path = out.path() + "/x.safetensors";
  auto writer = Must(SafetensorsWriter::Create(PosixEnv(), path, tensors));
  const std::vector<float> zeros(40);
  for (const StoredTensor& t : writer.order()) {
    ASSERT_TRUE(writer.Append(t.name, std::as_bytes(std::span(zeros)).first(static_cast<size_t>(t.bytes().v))).ok());
  }
  ASSERT_TRUE(writer.Finish().ok());
  const Outcome brief = Look(path);
  EXPECT_LE(std::count(brief.text.begin(), brief.text.end(), '\n'), 24) << brief.text;
  EXPECT_TRUE(Contains(brief.text, "kind39")) << brief.text;
  EXPECT_TRUE(Contains(brief.text, "28 more kinds, ")) << brief.text;
  EXPECT_FALSE(Contains(brief.text, "kind11")) << brief.text;
  EXPECT_TRUE(Contains(Look(path, {.all = true}).text, "kind11"));
}

TEST(Inspect, JsonHasEveryTensor) {
  const ScratchFolder out;
  SaveAdapterCheckpoint(out.path());
  const Outcome o = Look(out.path(), {.json = true});
  ASSERT_TRUE(o.status.ok()) << o.status.message();
  const Json report = Json::parse(o.text);
  EXPECT_EQ(report["valid"], true);
  ASSERT_EQ(report["items"].size(), 2u) << o.text;
  EXPECT_EQ(report["items"][0]["kind"], "checkpoint");
  EXPECT_EQ(report["items"][0]["step"], 5);
  EXPECT_EQ(report["items"][0]["tensors"].size(), 6u);
  EXPECT_EQ(report["items"][1]["kind"], "adapter");
  EXPECT_EQ(report["items"][1]["tensors"].size(), 4u);
}

TEST(Inspect, FindsADamagedTensor) {
  const ScratchFolder out;
  const std::string folder = SaveAdapterCheckpoint(out.path()), path = folder + "/state.safetensors";
  std::string text = Slurp(path);
  text.back() = static_cast<char>(text.back() ^ 4);
  Spill(path, text);
  const Outcome o = Look(folder);
  EXPECT_EQ(o.status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(o.status.message(), "adam_m:")) << o.status.message();
  EXPECT_EQ(Look(out.path()).status.code(), StatusCode::kCorrupt) << "an output folder is valid if its checkpoints are";
}

TEST(Inspect, FindsAnAdapterThatLacksAHalf) {
  const ScratchFolder out;
  float a[6] = {};
  const NamedView view{LoraAName("q_proj"), {reinterpret_cast<std::byte*>(a), {DType::kF32, {2, 3}}}};
  ASSERT_TRUE(WriteAdapter(PosixEnv(), out.path() + "/a",
                           {.r = 2, .target_modules = std::vector<std::string>{"q_proj"}, .base_model = "b"},
                           {&view, 1})
                  .ok());
  const Outcome o = Look(out.path() + "/a");
  EXPECT_EQ(o.status.code(), StatusCode::kCorrupt);
  EXPECT_TRUE(Contains(o.status.message(), "lora_B")) << o.status.message();
}

// Of a head with an adapter PEFT stores what is frozen, too: its weight, and a bias if it has one.
TEST(Inspect, AnAdapterOfAHeadMayHoldWhatIsFrozen) {
  const ScratchFolder out;
  float a[6] = {}, b[10] = {}, weight[15] = {}, bias[5] = {};
  const auto view = [](float* data, Shape shape) {
    return View{reinterpret_cast<std::byte*>(data), {DType::kF32, shape}};
  };
  const auto [weight_name, bias_name] = LoraBaseNames("lm_head");
  const std::vector<NamedView> tensors = {{LoraAName("lm_head"), view(a, {2, 3})},
                                          {LoraBName("lm_head"), view(b, {5, 2})},
                                          {weight_name, view(weight, {5, 3})},
                                          {bias_name, view(bias, {5})}};
  const LoraConfig config{.r = 2, .target_modules = std::vector<std::string>{"lm_head"}, .base_model = "b"};
  ASSERT_TRUE(WriteAdapter(PosixEnv(), out.path() + "/a", config, tensors).ok());
  const Outcome o = Look(out.path() + "/a");
  EXPECT_TRUE(o.status.ok()) << o.status.message();
}

TEST(Inspect, NamesOnTheTerminalAreHarmless) {
  const ScratchFolder out;
  auto writer =
      SafetensorsWriter::Create(PosixEnv(), out.path() + "/x.safetensors", {{"evil\x1b[2J", {DType::kF32, {0}}}});
  ASSERT_TRUE(writer.ok() && writer->Finish().ok());
  const Outcome o = Look(out.path() + "/x.safetensors");
  EXPECT_TRUE(o.status.ok()) << o.status.message();
  EXPECT_FALSE(Contains(o.text, "\x1b"));
  EXPECT_TRUE(Contains(o.text, "1 tensor ("));
}

TEST(Inspect, SaysWhatItCannotUse) {
  const ScratchFolder out;
  EXPECT_EQ(Look(out.path() + "/none").status.code(), StatusCode::kNotFound);
  EXPECT_EQ(Look(out.path()).status.code(), StatusCode::kNotFound);
  Spill(out.path() + "/x.safetensors", "short");
  EXPECT_EQ(Look(out.path() + "/x.safetensors").status.code(), StatusCode::kCorrupt);
  Spill(out.path() + "/config.json", "{}");
  EXPECT_FALSE(Look(out.path()).status.ok()) << "a model without weights";
}

}  // namespace
}  // namespace temper::inspect_test
