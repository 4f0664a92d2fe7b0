// LoRA on a base whose files have its linear modules in FP8, as DeepSeek and Qwen publish them, for users: from loading
// to export, beside the same model with the numbers that they dequantise to.
#include <filesystem>
#include <map>

#include "tensor/format_rule.h"
#include "tensor/quantise_for_test.h"
#include "typed_tensors.h"

namespace temper::program::fp8_base_test {
namespace {

std::string BytesOf(const auto& values) {
  const auto bytes = std::as_bytes(std::span(values));
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

constexpr const char* kLeft = "model.layers.0.mlp.down_proj";

class Fp8Base : public Workplace {
 protected:
  // The small model twice: "fp8", whose linear modules but kLeft and the head are so, and "plain", which has what these
  // dequantise to.
  Fp8Base() { WriteModels(kModel); }

  void WriteModels(const std::string& from) {
    TypedTensors kept = TensorsIn(from), plain = kept;
    Json config = Json::parse(temper::Slurp(from + "/config.json"));
    const ElementFormat fp8 = Must(ParseElementFormat("fp8"));
    for (auto& [name, t] : plain) {
      if (!name.ends_with("_proj.weight") || name == std::string(kLeft) + ".weight") continue;
      const int64_t rows = t.first.dims[0], columns = t.first.dims[1];
      std::vector<float> x(static_cast<size_t>(rows * columns));
      std::vector<bf16> numbers(x.size());
      TEMPER_CHECK(t.first.dtype->name == "BF16") << t.first.ToString();
      std::memcpy(numbers.data(), t.second.data(), t.second.size());
      std::transform(numbers.begin(), numbers.end(), x.begin(), [](bf16 v) { return ToFloat(v); });
      const Fp8Stored stored = Fp8OfMatrix(x, rows, columns);
      const auto in_memory = Quantised(fp8, x, {rows, columns}, {0, 0}, {rows, columns});
      for (int64_t i = 0; i < rows * columns; ++i) {
        numbers[static_cast<size_t>(i)] =
            fp8.Number(in_memory.data() + i / columns * fp8.RowBytes(columns), columns, i % columns);
      }
      t.second = BytesOf(numbers);
      kept[name] = {{.name = name, .dtype = FindStoredDType("F8_E4M3"), .dims = t.first.dims, .end = rows * columns},
                    BytesOf(stored.elements)};
      const StoredTensor scales{.name = name + "_scale_inv",
                                .dtype = FindStoredDType("F32"),
                                .dims = {(rows + 127) / 128, (columns + 127) / 128},
                                .end = 4 * std::ssize(stored.scales)};
      kept[scales.name] = {scales, BytesOf(stored.scales)};
      bytes_saved_ += rows * (2 * columns - fp8.RowBytes(columns));
    }
    for (const auto& [folder, tensors] : {std::pair("fp8", &kept), {"plain", &plain}}) {
      const std::string to = CopyModel(folder);
      std::filesystem::remove(to + "/model.safetensors");
      config.erase("quantization_config");
      if (tensors == &kept) config["quantization_config"] = Config();
      temper::Spill(to + "/config.json", config.dump());
      WriteTensors(to, *tensors);
    }
  }
  static Json Config() {
    return {{"quant_method", "fp8"},
            {"activation_scheme", "dynamic"},
            {"fmt", "e4m3"},
            {"weight_block_size", {128, 128}},
            {"modules_to_not_convert", {"lm_head", kLeft}}};
  }

  static Arguments On(const char* model, const Arguments& more = {}) {
    return With(Train({"--model", model, "--dtype", "bf16", "--learning_rate", "1e-3"}), more);
  }
  std::map<int64_t, double> LossesOf(const Arguments& options) {
    const Ended ended = Temper(With(options, {"--overwrite", "true", "--output_dir", "curve"}));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Losses(Path("curve"));
  }
  std::string Answer(const std::string& model) {
    const Ended ended = Temper({"generate", "--model", model, "--dtype", "bf16", "--prompt", "Once", "--threads", "1",
                                "--max_new_tokens", "12", "--temperature", "0"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return ended.out;
  }

  int64_t bytes_saved_ = 0;
};

TEST_F(Fp8Base, ItComputesWhatItsNumbersDo) {
  const Ended trained = Temper(With(On("fp8"), {"--dtype", "auto"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto expected = LossesOf(On("plain"));
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_LT(expected.at(4), expected.at(1));
  EXPECT_EQ(Losses(Path("out")), expected) << "dtype is bf16 by itself";
  EXPECT_EQ(LossesOf(On("fp8", {"--memory.weights", "disk", "--memory.disk", "spill"})), expected);
  EXPECT_EQ(LossesOf(On("fp8", {"--dtype", "f32"})), LossesOf(On("plain", {"--dtype", "f32"}))) << "which dequantises";
  EXPECT_EQ(LossesOf(On("fp8", {"--base_dtype", "nf4"})), LossesOf(On("plain", {"--base_dtype", "nf4"})))
      << "quantised once more, of the numbers";
  EXPECT_EQ(Answer("fp8"), Answer("plain"));
  const auto eval = [&](const char* model) {
    const Ended ended = Temper(
        {"eval", "--model", model, "--data", "e.jsonl", "--max_seq_len", "96", "--dtype", "bf16", "--threads", "1"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out)["eval_loss"].get<double>();
  };
  EXPECT_EQ(eval("fp8"), eval("plain"));
}

TEST_F(Fp8Base, RanksHaveTheLossesOfOne) {
  const Arguments run = On("fp8", {"--per_device_train_batch_size", "1"});
  const auto expected = LossesOf(With(run, {"--gradient_accumulation_steps", "2"}));
  for (const auto& [mesh, accumulation] : {std::pair{"fsdp=2", "1"}, {"cp=2", "2"}, {"pp=2", "2"}}) {
    SCOPED_TRACE(mesh);
    const auto losses =
        LossesOf(With(run, {"--nprocs", "2", "--mesh", mesh, "--gradient_accumulation_steps", accumulation}));
    ASSERT_EQ(losses.size(), expected.size());
    // Sums in another order, in bf16.
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 0.01 * expected.at(step)) << step;
  }
}

TEST_F(Fp8Base, APlanShowsItsBytes) {
  const auto weights = [&](const char* model) {
    // Not for this processor, which may pack a bf16 base, in twice its bytes.
    const Ended plan = Temper(
        {"plan", "--json", "--model", model, "--dtype", "bf16", "--cluster", "RTX3090-24", "--max_seq_len", "96"});
    EXPECT_EQ(plan.code, 0) << plan.err;
    return Json::parse(plan.out)["bytes"]["device"]["weights"].get<int64_t>();
  };
  EXPECT_EQ(weights("plain") - weights("fp8"), bytes_saved_);
}

// Modules that no adapter changes go into an export byte for byte; those of others are in bf16, and named.
TEST_F(Fp8Base, AnExportKeepsWhatNoAdapterChanges) {
  const Arguments some = {"--lora.target_modules", "q_proj,v_proj"};
  for (const char* model : {"fp8", "plain"}) {
    for (const bool all : {false, true}) {
      const std::string to = std::string(model) + (all ? "_all" : "_some");
      const Ended trained = Temper(On(model, With(all ? Arguments() : some, {"--output_dir", to})));
      ASSERT_EQ(trained.code, 0) << trained.err;
      const Ended ended = Temper({"export", "--model", to, "--output_dir", to + "_merged"});
      ASSERT_EQ(ended.code, 0) << ended.err;
    }
  }
  const TypedTensors base = TensorsIn(Path("fp8")), merged = TensorsIn(Path("fp8_some_merged")),
                     plain = TensorsIn(Path("plain_some_merged"));
  size_t in_fp8 = 0;
  for (const auto& [name, t] : merged) {
    const bool kept = base.at(name).first.dtype->name == "F8_E4M3" && t.first.dtype->name == "F8_E4M3";
    in_fp8 += kept;
    EXPECT_EQ(t.second, (kept || name.ends_with("_scale_inv") ? base : plain).at(name).second) << name;
    EXPECT_FALSE(kept && name.find("q_proj") != name.npos) << name;
  }
  EXPECT_GT(in_fp8, 0u);
  const Json left = Json::parse(Slurp("fp8_some_merged/config.json"))["quantization_config"]["modules_to_not_convert"];
  EXPECT_NE(std::find(left.begin(), left.end(), "model.layers.1.self_attn.v_proj"), left.end()) << left.dump();
  EXPECT_EQ(Answer("fp8_some_merged"), Answer("plain_some_merged"));
  EXPECT_FALSE(Json::parse(Slurp("fp8_all_merged/config.json")).contains("quantization_config"));
  const TypedTensors all = TensorsIn(Path("fp8_all_merged")), of_plain = TensorsIn(Path("plain_all_merged"));
  ASSERT_EQ(all.size(), of_plain.size());
  for (const auto& [name, t] : all) EXPECT_EQ(t.second, of_plain.at(name).second) << name;
}

TEST_F(Fp8Base, InspectNamesIt) {
  const Ended ended = Temper({"inspect", "fp8"});
  EXPECT_NE(ended.out.find("FP8["), std::string::npos) << ended.out << ended.err;
}

TEST_F(Fp8Base, WhatCannotBeIsRefusedInALine) {
  ExpectEnd(Temper(On("fp8", {"--method", "full"})), 2, {"stored as fp8, which method: full cannot train"});
  const std::string path = Path("fp8") + "/config.json";
  const Json config = Json::parse(temper::Slurp(path));
  const auto with = [&](const char* key, const Json& value) {
    Json changed = config;
    changed["quantization_config"][key] = value;
    temper::Spill(path, changed.dump());
    return Temper(On("fp8"));
  };
  ExpectEnd(with("weight_block_size", {64, 64}), 1,
            {"weight_block_size: [64,64]", "of fp8 models those with [128, 128] are read"});
  ExpectEnd(with("fmt", "e5m2"), 1, {"fmt: \"e5m2\""});
  ExpectEnd(with("modules_to_not_convert", {"model.layers.*.mlp"}), 1,
            {"model.layers.*.mlp", "names of modules are read"});
  ExpectEnd(with("modules_to_not_convert", {"lm_head"}), 1,
            {std::string(kLeft) + ".weight' is BF16", "config.json says that linear modules are in FP8"});
}

}  // namespace
}  // namespace temper::program::fp8_base_test
