// temper export --format gguf: what lies in the file, read back by a small reader. llama.cpp's own reading is compared
// by tests/parity/gguf/check_gguf.py.
#include "checkpoint/gguf_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
#include "checkpoint/gguf_adapter.h"
#include "checkpoint/sliced_weights.h"
#include "checkpoint/state_for_test.h"
#include "format/json.h"
#include "run/gguf_plan.h"

namespace temper::gguf_export_test {
namespace {

const std::string kGoldens = std::string(kProjectFolder) + "/tests/parity/goldens/";

// What a GGUF file holds, of tensors those in f32.
struct GgufFile {
  std::map<std::string, std::string> texts;
  std::map<std::string, std::vector<float>> tensors;
  std::map<std::string, uint32_t> types;

  static GgufFile Read(const std::string& path) {
    GgufFile file;
    const std::string bytes = Must(ReadTextFile(PosixEnv(), path));
    size_t at = 0;
    const auto number = [&]<class T>(T) {
      T x;
      std::memcpy(&x, bytes.data() + at, sizeof(x));
      at += sizeof(x);
      return x;
    };
    const auto text = [&] {
      const auto size = number(uint64_t{});
      at += size;
      return bytes.substr(at - size, size);
    };
    EXPECT_EQ(bytes.substr(0, 4), "GGUF");
    at = 8;
    const auto tensors = number(uint64_t{}), pairs = number(uint64_t{});
    const std::map<uint32_t, size_t> sizes = {{4, 4}, {5, 4}, {6, 4}, {7, 1}};
    for (uint64_t i = 0; i < pairs; ++i) {
      const std::string key = text();
      auto type = number(uint32_t{});
      uint64_t count = 1;
      const bool list = type == 9;
      if (list) {
        type = number(uint32_t{});
        count = number(uint64_t{});
      }
      for (uint64_t n = 0; n < count; ++n) {
        if (type == 8) {
          const std::string value = text();
          if (!list) file.texts[key] = value;
        } else {
          at += sizes.at(type);
        }
      }
    }
    struct Placed {
      std::string name;
      int64_t elements = 1;
      uint64_t offset = 0;
    };
    std::vector<Placed> placed;
    for (uint64_t i = 0; i < tensors; ++i) {
      Placed& p = placed.emplace_back(Placed{text()});
      const auto dims = number(uint32_t{});
      for (uint32_t d = 0; d < dims; ++d) p.elements *= static_cast<int64_t>(number(uint64_t{}));
      file.types[p.name] = number(uint32_t{});
      p.offset = number(uint64_t{});
    }
    const size_t data = (at + 31) / 32 * 32;
    for (const Placed& p : placed) {
      if (file.types[p.name] != 0) continue;
      std::vector<float> x(static_cast<size_t>(p.elements));
      std::memcpy(x.data(), bytes.data() + data + p.offset, x.size() * sizeof(float));
      file.tensors[p.name] = std::move(x);
    }
    return file;
  }
};

OpenedModel Open(const std::string& model, const std::string& adapter = "") {
  return Must(OpenedModel::Open(PosixEnv(), {.model = model, .adapter = adapter}));
}

Result<ExportReport> Export(const OpenedModel& model, const std::string& folder, QuantMix mix, int threads = 2) {
  TEMPER_ASSIGN_OR_RETURN(GgufExportSpec spec, PlanGguf(PosixEnv(), model));
  spec.source.output_dir = folder;
  spec.mix = mix;
  spec.file = "m.gguf";
  spec.threads = threads;
  return ExportGguf(PosixEnv(), std::move(spec));
}

std::vector<float> TensorOf(const std::string& folder, const std::string& name) {
  const ModelWeights weights = Must(OpenModelWeights(PosixEnv(), folder));
  const ModelWeights::Entry entry = Must(weights.Require(name));
  std::vector<float> x(static_cast<size_t>(entry.tensor->elements()));
  EXPECT_TRUE(entry.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(x))).ok());
  return x;
}

TEST(GgufExport, RowsOfQueriesAreReorderedForNeighboursThatTurn) {
  const std::string model = kGoldens + "models/llama_mha";  // 3 heads of 12, 36 wide
  ScratchFolder folder;
  const auto report = Export(Open(model), folder / "out", QuantMix::kF32);
  ASSERT_TRUE(report.ok()) << report.status().message();
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  EXPECT_EQ(file.texts.at("general.architecture"), "llama");
  const std::vector<float> q = TensorOf(model, "model.layers.0.self_attn.q_proj.weight");
  const std::vector<float>& turned = file.tensors.at("blk.0.attn_q.weight");
  ASSERT_EQ(q.size(), turned.size());
  for (int head = 0; head < 3; ++head) {
    for (int i = 0; i < 12; ++i) {
      const int from = 12 * head + i / 2 + i % 2 * 6;
      EXPECT_EQ(turned[static_cast<size_t>((12 * head + i) * 36)], q[static_cast<size_t>(from * 36)])
          << head << " " << i;
    }
  }
  EXPECT_EQ(file.tensors.at("blk.0.attn_v.weight"), TensorOf(model, "model.layers.0.self_attn.v_proj.weight"));
  EXPECT_EQ(file.tensors.at("output.weight"), TensorOf(model, "lm_head.weight"));
}

TEST(GgufExport, MatricesThatFilesHaveTransposedAreTurned) {
  const std::string model = kGoldens + "models/gpt2";
  ScratchFolder folder;
  ASSERT_TRUE(Export(Open(model), folder / "out", QuantMix::kF32).ok());
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  const std::vector<float> stored = TensorOf(model, "transformer.h.0.mlp.c_fc.weight");  // [24, 40]
  const std::vector<float>& turned = file.tensors.at("blk.0.ffn_up.weight");
  for (size_t out = 0; out < 40; ++out) {
    for (size_t in = 0; in < 24; ++in) ASSERT_EQ(turned[out * 24 + in], stored[in * 40 + out]);
  }
}

TEST(GgufExport, ExpertsAreStacked) {
  const std::string model = kGoldens + "models/mixtral";
  ScratchFolder folder;
  ASSERT_TRUE(Export(Open(model), folder / "out", QuantMix::kF32).ok());
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  const std::vector<float>& all = file.tensors.at("blk.0.ffn_down_exps.weight");
  const std::vector<float> second = TensorOf(model, "model.layers.0.block_sparse_moe.experts.1.w2.weight");
  EXPECT_TRUE(std::equal(second.begin(), second.end(), all.begin() + std::ssize(second)));
}

TEST(GgufExport, AnyNumberOfThreadsWritesTheSameBytes) {
  const OpenedModel model = Open(kGoldens + "models/llama_gqa_tied");
  std::string first;
  for (const int threads : {1, 3}) {
    ScratchFolder folder;
    ASSERT_TRUE(Export(model, folder / "out", QuantMix::kQ8_0, threads).ok());
    const std::string bytes = Must(ReadTextFile(PosixEnv(), folder / "out/m.gguf"));
    if (first.empty()) first = bytes;
    EXPECT_EQ(bytes, first);
  }
}

TEST(GgufExport, AnExistingFileStaysUnlessItMayBeReplaced) {
  const OpenedModel model = Open(kGoldens + "models/llama_gqa_tied");
  ScratchFolder folder;
  ASSERT_TRUE(Export(model, folder / "out", QuantMix::kF16).ok());
  const auto again = Export(model, folder / "out", QuantMix::kF16);
  EXPECT_EQ(again.status().code(), StatusCode::kInvalidArgument);
  EXPECT_NE(again.status().message().find("--overwrite"), std::string::npos);
}

TEST(GgufExport, NumbersThatTheTypeCannotHoldAreNamed) {
  const std::string model = kGoldens + "models/llama_gqa_tied";
  ScratchFolder folder;
  GgufExportSpec spec = Must(PlanGguf(PosixEnv(), Open(model)));
  for (GgufTensor& tensor : spec.model.tensors) {
    if (tensor.name == "blk.1.ffn_up.weight") tensor.added = 70000;
  }
  spec.source.output_dir = folder / "out";
  spec.file = "m.gguf";
  const auto report = ExportGguf(PosixEnv(), std::move(spec));
  EXPECT_EQ(report.status().code(), StatusCode::kNumerical);
  EXPECT_NE(report.status().message().find("blk.1.ffn_up.weight"), std::string::npos) << report.status().message();
  EXPECT_FALSE(PosixEnv().IsFile(folder / "out/m.gguf"));
}

// [rows, r] times [r, columns].
std::vector<float> Product(const std::vector<float>& b, const std::vector<float>& a, size_t r) {
  const size_t rows = b.size() / r, columns = a.size() / r;
  std::vector<float> w(rows * columns);
  for (size_t row = 0; row < rows; ++row) {
    for (size_t k = 0; k < r; ++k) {
      for (size_t c = 0; c < columns; ++c) w[row * columns + c] += b[row * r + k] * a[k * columns + c];
    }
  }
  return w;
}

// Rows of q and k are reordered (Llama), cut out of a fused product (GLM), transposed in the base's files (GPT-2).
TEST(GgufExport, ABaseWithItsAdapterIsTheMergedModel) {
  for (const auto& [base_name, name] :
       {std::pair{"llama_gqa_tied", "lora_llama_rslora"}, {"glm4", "lora_glm4"}, {"gpt2", "lora_gpt2"}}) {
    SCOPED_TRACE(name);
    const std::string model = kGoldens + "models/" + base_name, adapter = kGoldens + "adapters/" + name;
    const OpenedModel both = Open(model, adapter);
    ScratchFolder folder;
    ASSERT_TRUE(Export(Open(model), folder / "base", QuantMix::kF32).ok());
    ASSERT_TRUE(Export(both, folder / "merged", QuantMix::kF32).ok());
    GgufExportSpec spec = Must(PlanGgufAdapter(both));
    spec.source.output_dir = folder / "adapter";
    spec.mix = QuantMix::kF32;
    spec.file = "m.gguf";
    const auto report = ExportGgufAdapter(PosixEnv(), spec);
    ASSERT_TRUE(report.ok()) << report.status().message();
    const GgufFile base = GgufFile::Read(folder / "base/m.gguf"), merged = GgufFile::Read(folder / "merged/m.gguf");
    const GgufFile alone = GgufFile::Read(folder / "adapter/m.gguf");
    EXPECT_EQ(alone.texts.at("general.type"), "adapter");
    EXPECT_EQ(alone.texts.at("general.architecture"), base.texts.at("general.architecture"));
    const LoraModule& m = spec.source.modules.front();
    int64_t adapted = 0;
    for (const auto& [tensor, w] : base.tensors) {
      std::vector<float> sum = w;
      if (alone.tensors.contains(tensor + ".lora_a")) {
        const auto r = static_cast<size_t>(m.r);
        const std::vector<float> product =
            Product(alone.tensors.at(tensor + ".lora_b"), alone.tensors.at(tensor + ".lora_a"), r);
        ASSERT_EQ(product.size(), w.size()) << tensor;
        for (size_t i = 0; i < sum.size(); ++i) sum[i] += static_cast<float>(m.scale) * product[i];
        ++adapted;
      }
      const std::vector<float>& expected = merged.tensors.at(tensor);
      for (size_t i = 0; i < sum.size(); ++i) ASSERT_NEAR(sum[i], expected[i], 1e-5) << tensor << " " << i;
    }
    EXPECT_EQ(2 * adapted, report->tensors);
    EXPECT_NE(base.tensors, merged.tensors) << "the adapter changes nothing";
  }
}

TEST(GgufExport, WhatAnAdaptersFileCannotHoldIsRefusedByName) {
  const auto message = [](const std::string& model, const std::string& adapter,
                          const std::function<void(GgufExportSpec&)>& change) {
    GgufExportSpec spec = Must(PlanGgufAdapter(Open(kGoldens + "models/" + model, kGoldens + "adapters/" + adapter)));
    ScratchFolder folder;
    spec.source.output_dir = folder / "out";
    spec.file = "m.gguf";
    change(spec);
    const auto report = ExportGgufAdapter(PosixEnv(), spec);
    EXPECT_FALSE(report.ok());
    EXPECT_FALSE(PosixEnv().IsFile(folder / "out/m.gguf"));
    return report.status().message();
  };
  const auto none = [](GgufExportSpec&) {};
  EXPECT_NE(message("glm4_moe_lite", "curve_lora_glm4_moe_lite", none).find("experts (model.layers.1.mlp"),
            std::string::npos);
  EXPECT_NE(message("glm4_moe_lite", "curve_lora_glm4_moe_lite",
                    [](auto& s) { std::erase_if(s.source.modules, [](const auto& m) { return m.matrices > 0; }); })
                .find("kv_b_proj"),
            std::string::npos);
  EXPECT_NE(message("glm4", "curve_lora_glm4", [](auto& s) { s.mix = QuantMix::kQ4KM; }).find("--gguf_type"),
            std::string::npos);
  EXPECT_NE(message("glm4", "curve_lora_glm4", [](auto& s) { s.source.modules[0].has_magnitudes = true; }).find("DoRA"),
            std::string::npos);
}

TEST(GgufExport, StatesDecayByMinusTheExponential) {
  const std::string model = kGoldens + "models/falcon_h1";
  ScratchFolder folder;
  ASSERT_TRUE(Export(Open(model), folder / "out", QuantMix::kF32).ok());
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  const std::vector<float> stored = TensorOf(model, "model.layers.0.mamba.A_log");
  const std::vector<float>& decay = file.tensors.at("blk.0.ssm_a");
  ASSERT_EQ(decay.size(), stored.size());
  for (size_t i = 0; i < stored.size(); ++i) EXPECT_FLOAT_EQ(decay[i], -std::exp(stored[i]));
  // 24 rows of z and as many of x, which are scaled by 1.3, and by 0.8 and 1.2.
  const std::vector<float> in = TensorOf(model, "model.layers.0.mamba.in_proj.weight");
  const std::vector<float>& scaled = file.tensors.at("blk.0.ssm_in.weight");
  EXPECT_FLOAT_EQ(scaled[5], in[5] * 1.3f * 0.8f);
  EXPECT_FLOAT_EQ(scaled[24 * 16 + 5], in[24 * 16 + 5] * 1.3f * 1.2f);
  // Channels of x, b and c, which are three weights of one tensor.
  EXPECT_EQ(file.tensors.at("blk.0.ssm_conv1d.weight"), TensorOf(model, "model.layers.0.mamba.conv1d.weight"));
}

TEST(GgufExport, KeysOfLatentsAreTurnedHeadByHead) {
  const std::string model = kGoldens + "models/glm4_moe_lite";  // 4 heads, 6 elements of keys and 10 of values, rank 12
  ScratchFolder folder;
  ASSERT_TRUE(Export(Open(model), folder / "out", QuantMix::kF32).ok());
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  const std::vector<float> stored = TensorOf(model, "model.layers.1.self_attn.kv_b_proj.weight");  // [4 x 16, 12]
  const std::vector<float>&keys = file.tensors.at("blk.1.attn_k_b.weight"),
        &values = file.tensors.at("blk.1.attn_v_b.weight");
  ASSERT_EQ(keys.size(), 4U * 12 * 6);
  for (size_t head = 0; head < 4; ++head) {
    for (size_t l = 0; l < 12; ++l) {
      for (size_t e = 0; e < 6; ++e) {
        ASSERT_EQ(keys[(head * 12 + l) * 6 + e], stored[(head * 16 + e) * 12 + l]) << head << " " << l << " " << e;
      }
      for (size_t e = 0; e < 10; ++e) {
        ASSERT_EQ(values[(head * 10 + e) * 12 + l], stored[(head * 16 + 6 + e) * 12 + l]);
      }
    }
  }
}

// Gate and up of all experts are one tensor in the model's files.
TEST(GgufExport, StacksAreCutByTheRowsOfEachMatrix) {
  const std::string model = kGoldens + "models/granite_moe";  // 4 experts of 24 x 16
  ScratchFolder folder;
  ASSERT_TRUE(Export(Open(model), folder / "out", QuantMix::kF32).ok());
  const GgufFile file = GgufFile::Read(folder / "out/m.gguf");
  const std::vector<float> stored = TensorOf(model, "model.layers.0.block_sparse_moe.input_linear.weight");
  const std::vector<float>& up = file.tensors.at("blk.0.ffn_up_exps.weight");
  ASSERT_EQ(2 * up.size(), stored.size());
  for (size_t expert = 0; expert < 4; ++expert) {
    for (size_t i = 0; i < 24U * 16; ++i) ASSERT_EQ(up[expert * 24 * 16 + i], stored[(2 * expert + 1) * 24 * 16 + i]);
  }
}

}  // namespace
}  // namespace temper::gguf_export_test
