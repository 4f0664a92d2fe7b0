// Frozen experts that are kept quantised: a gpt-oss folder in MXFP4, as it is published, from loading to export; and
// nf4 and int8 of experts that files have in bf16.
#include <fmt/ranges.h>

#include <cmath>
#include <filesystem>
#include <map>

#include "checkpoint/load_weights.h"
#include "format/model_weights.h"
#include "format/safetensors.h"
#include "tensor/element_format.h"
#include "tensor/quantise_for_test.h"
#include "typed_tensors.h"

namespace temper::program::experts_base_test {
namespace {

constexpr int64_t kBlocks = 2, kExperts = 4, kHidden = 64, kFfn = 96;

class ExpertsBase : public Workplace {
 protected:
  // A small gpt-oss with random weights, twice: "mxfp4", whose experts are so, and "plain", which has what these
  // dequantise to.
  ExpertsBase() {
    const std::string drawn = CopyModel("drawn");
    std::filesystem::remove(drawn + "/model.safetensors");
    temper::Spill(drawn + "/config.json",
                  fmt::format(R"({{"architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "vocab_size": 2048,
        "hidden_size": {}, "num_hidden_layers": {}, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16,
        "intermediate_size": {}, "num_local_experts": {}, "num_experts_per_tok": 2, "sliding_window": 24,
        "max_position_embeddings": 256, "initializer_range": 0.1, "dtype": "bfloat16", "bos_token_id": 0,
        "eos_token_id": 1, "rope_parameters": {{"rope_type": "default", "rope_theta": 10000.0}}}})",
                              kHidden, kBlocks, kFfn, kExperts));
    const Ended made = Temper(Train({"--model", drawn, "--method", "full", "--from_scratch", "true", "--max_steps", "1",
                                     "--dtype", "f32", "--learning_rate", "0", "--output_dir", Path("made")}));
    TEMPER_CHECK(made.code == 0) << made.err;
    TypedTensors kept = TensorsIn(Path("made")), plain = kept;
    for (const auto& [name, t] : plain) {
      if (!name.ends_with("experts.gate_up_proj") && !name.ends_with("experts.down_proj")) continue;
      kept.erase(name);
      Quantise(name, t.first.dims, &kept, &plain);
    }
    for (const auto& [folder, tensors] : {std::pair("mxfp4", &kept), {"plain", &plain}}) {
      CopyModel(folder);
      std::filesystem::remove(Path(folder) + "/model.safetensors");
      Json config = Json::parse(temper::Slurp(drawn + "/config.json"));
      if (tensors == &kept) config["quantization_config"] = {{"quant_method", "mxfp4"}};
      Spill(JoinPath(folder, "config.json"), config.dump());
      WriteTensors(Path(folder), *tensors);
    }
  }

  // Stack `name`, [experts, in, out], as MXFP4 to `kept` and as its numbers to `plain`.
  static void Quantise(const std::string& name, const std::vector<int64_t>& dims, TypedTensors* kept,
                       TypedTensors* plain) {
    const int64_t in = dims[1], out = dims[2];
    std::string& numbers = (*plain)[name].second;
    auto* const x = reinterpret_cast<bf16*>(numbers.data());
    std::string blocks, scales;
    std::vector<float> row(static_cast<size_t>(in));
    for (int64_t e = 0; e < dims[0]; ++e) {
      for (int64_t o = 0; o < out; ++o) {
        const auto at = [&](int64_t i) -> bf16& { return x[(e * in + i) * out + o]; };
        for (int64_t i = 0; i < in; ++i) row[static_cast<size_t>(i)] = ToFloat(at(i));
        const Mxfp4Stored stored = Mxfp4OfRow(row);
        blocks.append(reinterpret_cast<const char*>(stored.pairs.data()), stored.pairs.size());
        scales.append(reinterpret_cast<const char*>(stored.scales.data()), stored.scales.size());
        std::vector<std::byte> rows(static_cast<size_t>(Mxfp4RowBytes(in)));
        WriteMxfp4Row(stored.pairs, stored.scales, 0, in, rows.data());
        for (int64_t i = 0; i < in; ++i) at(i) = ElementFormat::Mxfp4().Number(rows.data(), in, i);
      }
    }
    const StoredDType* const u8 = FindStoredDType("U8");
    const StoredTensor of_blocks{
        .name = name, .dtype = u8, .dims = {dims[0], out, in / 32, 16}, .end = std::ssize(blocks)};
    const StoredTensor of_scales{.name = name, .dtype = u8, .dims = {dims[0], out, in / 32}, .end = std::ssize(scales)};
    (*kept)[name + "_blocks"] = {of_blocks, blocks};
    (*kept)[name + "_scales"] = {of_scales, scales};
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
  static constexpr const char* kOnExperts[] = {"--lora.target_parameters", "experts.gate_up_proj,experts.down_proj"};
};

int64_t BytesOfExperts(ElementFormat format) {
  return kBlocks * kExperts * (2 * kFfn * format.RowBytes(kHidden) + kHidden * format.RowBytes(kFfn));
}

// Training, with adapters on attention and on experts, from memory and from the disk; evaluation; decoding.
TEST_F(ExpertsBase, Mxfp4ComputesWhatItsNumbersDo) {
  const Ended trained = Temper(With(On("mxfp4"), {"--dtype", "auto"}));
  ASSERT_EQ(trained.code, 0) << trained.err;
  const auto expected = LossesOf(On("plain"));
  ASSERT_EQ(expected.size(), 4u);
  EXPECT_LT(expected.at(4), expected.at(1));
  EXPECT_EQ(Losses(Path("out")), expected) << "dtype is bf16 by itself";
  const Arguments disk = {"--memory.weights", "disk", "--memory.disk", "spill"};
  EXPECT_EQ(LossesOf(On("mxfp4", disk)), expected);
  const Arguments on_experts = {kOnExperts[0], kOnExperts[1]};
  EXPECT_EQ(LossesOf(On("mxfp4", on_experts)), LossesOf(On("plain", on_experts)));
  EXPECT_EQ(Answer("mxfp4"), Answer("plain"));
  const auto eval = [&](const char* model) {
    const Ended ended = Temper(
        {"eval", "--model", model, "--data", "e.jsonl", "--max_seq_len", "96", "--dtype", "bf16", "--threads", "1"});
    EXPECT_EQ(ended.code, 0) << ended.err;
    return Json::parse(ended.out)["eval_loss"].get<double>();
  };
  EXPECT_EQ(eval("mxfp4"), eval("plain"));
}

TEST_F(ExpertsBase, RanksHaveTheLossesOfOne) {
  for (const Arguments& of : {On("mxfp4"), On("plain", {"--base_dtype", "nf4"})}) {
    const Arguments run = With(of, {"--per_device_train_batch_size", "1"});
    const auto expected = LossesOf(With(run, {"--gradient_accumulation_steps", "2"}));
    for (const auto& [mesh, accumulation] : {std::pair{"fsdp=2", "1"}, {"tp=2", "2"}, {"pp=2", "2"}}) {
      SCOPED_TRACE(mesh);
      const auto losses =
          LossesOf(With(run, {"--nprocs", "2", "--mesh", mesh, "--gradient_accumulation_steps", accumulation}));
      ASSERT_EQ(losses.size(), expected.size());
      // Sums in another order, in bf16.
      for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 0.01 * expected.at(step)) << step;
    }
  }
}

// Each matrix takes the bytes of its rows, instead of two bytes an element.
TEST_F(ExpertsBase, APlanShowsTheBytesOfQuantisedExperts) {
  const auto weights = [&](const char* model, const Arguments& more) {
    const Ended plan = Temper(With(
        {"plan", "--json", "--model", model, "--threads", "1", "--rates", "typical", "--max_seq_len", "96"}, more));
    EXPECT_EQ(plan.code, 0) << plan.err;
    return Json::parse(plan.out)["bytes"]["device"]["weights"].get<int64_t>();
  };
  // f32 is not packed for products, in more bytes.
  const int64_t in_f32 = weights("plain", {"--dtype", "f32"});
  const int64_t elements = kBlocks * kExperts * 3 * kFfn * kHidden;
  const int64_t others = in_f32 - 4 * elements;
  EXPECT_EQ(weights("mxfp4", {"--dtype", "f32"}), in_f32) << "which dequantises";
  const int64_t in_mxfp4 = weights("mxfp4", {});
  EXPECT_LT(in_mxfp4 - BytesOfExperts(ElementFormat::Mxfp4()), others);
  for (const ElementFormat format : {ElementFormat::Int8Rows(), ElementFormat::Nf4()}) {
    const std::string name(ToString(format));
    const int64_t kept = weights("plain", {"--base_dtype", name});
    const int64_t linear = weights("mxfp4", {"--base_dtype", name});  // whose experts stay as they are
    EXPECT_EQ(kept - BytesOfExperts(format), linear - BytesOfExperts(ElementFormat::Mxfp4())) << name;
    EXPECT_LT(linear, in_mxfp4);
  }
  const Ended both = Temper({"plan", "--model", "mxfp4", "--base_dtype", "nf4", "--rates", "typical"});
  EXPECT_NE(both.err.find("stay in mxfp4, as the model's files have them"), std::string::npos) << both.err;
}

// Experts that no adapter changes go into an export byte for byte; those of a block where one does are in bf16.
TEST_F(ExpertsBase, AnExportKeepsMxfp4ThatNoAdapterChanges) {
  const Arguments runs[] = {On("mxfp4", {"--output_dir", "attention"}),
                            On("plain", {"--output_dir", "attention_plain"}),
                            On("mxfp4", {"--output_dir", "all", kOnExperts[0], kOnExperts[1]}),
                            On("plain", {"--output_dir", "all_plain", kOnExperts[0], kOnExperts[1]})};
  for (const Arguments& run : runs) {
    const Ended trained = Temper(run);
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  const auto exported = [&](const std::string& model, const Arguments& more = {}) {
    const std::string to = model + "_merged" + (more.empty() ? "" : "_bf16");
    const Ended ended = Temper(With({"export", "--model", model, "--output_dir", to}, more));
    EXPECT_EQ(ended.code, 0) << ended.err;
    return to;
  };
  const auto is_quantised = [&](const std::string& folder) {
    return Json::parse(Slurp(JoinPath(folder, "config.json"))).contains("quantization_config");
  };
  const auto data = [&](const std::string& folder) {
    std::map<std::string, std::string> bytes;
    for (auto& [name, t] : TensorsIn(Path(folder))) bytes[name + " " + t.first.ToString().substr(0, 4)] = t.second;
    return bytes;
  };
  const std::string merged = exported("attention");
  EXPECT_TRUE(is_quantised(merged));
  const TypedTensors base = TensorsIn(Path("mxfp4")), kept = TensorsIn(Path(merged)),
                     plain = TensorsIn(Path(exported("attention_plain")));
  ASSERT_EQ(kept.size(), base.size());
  for (const auto& [name, t] : kept) {
    const bool expert = name.ends_with("_blocks") || name.ends_with("_scales");
    EXPECT_EQ(t.second, (expert ? base : plain).at(name).second) << name;
    EXPECT_EQ(t.first.dims, base.at(name).first.dims) << name;
  }
  EXPECT_EQ(Answer(merged), Answer("attention_plain_merged"));
  const std::string in_bf16 = exported("attention", {"--dtype", "bf16"});
  EXPECT_FALSE(is_quantised(in_bf16));
  EXPECT_EQ(data(in_bf16), data("attention_plain_merged"));
  const Arguments some = {"--lora.target_parameters", "0.mlp.experts.down_proj", "--learning_rate", "1e-3"};
  for (const char* model : {"mxfp4", "plain"}) {
    const Ended trained = Temper(On(model, With(some, {"--output_dir", std::string("some_") + model})));
    ASSERT_EQ(trained.code, 0) << trained.err;
  }
  const TypedTensors mixed = TensorsIn(Path(exported("some_mxfp4"))),
                     of_plain = TensorsIn(Path(exported("some_plain")));
  EXPECT_EQ(mixed.size(), base.size() - 2);
  for (const auto& [name, t] : mixed) {
    const bool expert = name.ends_with("_blocks") || name.ends_with("_scales");
    EXPECT_EQ(t.second, (expert ? base : of_plain).at(name).second) << name;
    EXPECT_TRUE(!expert || name.find("layers.1.") != name.npos) << name;
  }
  EXPECT_EQ(Json::parse(Slurp("some_mxfp4_merged/config.json"))["quantization_config"]["modules_to_not_convert"],
            Json::array({"model.layers.0.mlp.experts"}));
  EXPECT_EQ(Answer("some_mxfp4_merged"), Answer("some_plain_merged"));
  const std::string all = exported("all");
  EXPECT_FALSE(is_quantised(all));
  EXPECT_EQ(data(all), data(exported("all_plain")));
}

TEST_F(ExpertsBase, InspectNamesMxfp4) {
  const Ended ended = Temper({"inspect", "mxfp4"});
  EXPECT_NE(ended.out.find("MXFP4"), std::string::npos) << ended.out << ended.err;
}

// The rounding of nf4 and int8 is small, and decoding and evaluation read it.
TEST_F(ExpertsBase, ExpertsOfBf16AreQuantisedAsTheyAreLoaded) {
  const auto expected = LossesOf(On("plain"));
  for (const char* base : {"int8", "nf4"}) {
    const auto losses = LossesOf(On("plain", {"--base_dtype", base}));
    for (const auto& [step, loss] : losses) EXPECT_NEAR(loss, expected.at(step), 0.02 * expected.at(step)) << base;
    EXPECT_NE(losses, expected);
    const Ended answer = Temper({"generate", "--model", "curve", "--base_dtype", base, "--prompt", "Hello", "--threads",
                                 "1", "--max_new_tokens", "4"});
    EXPECT_EQ(answer.code, 0) << answer.err;
  }
}

TEST_F(ExpertsBase, WhatCannotBeIsRefusedInALine) {
  ExpectEnd(Temper(On("mxfp4", {"--method", "full"})), 2,
            {"stored as MXFP4, which method: full cannot train", "temper export mxfp4 --dtype bf16 --output_dir"});
  Spill("plain/config.json", Slurp("mxfp4/config.json"));
  ExpectEnd(Temper(On("plain")), 1, {"experts.gate_up_proj' is BF16", "config.json says that experts are in MXFP4"});
}

}  // namespace
}  // namespace temper::program::experts_base_test
