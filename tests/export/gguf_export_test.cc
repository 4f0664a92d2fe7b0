// temper export --format gguf: what lies in the file, read back by a small reader. llama.cpp's own reading is compared
// by tests/parity/gguf/check_gguf.py.
#include "checkpoint/gguf_export.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>

#include "base/project_folder_for_test.h"
#include "base/scratch_folder.h"
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

}  // namespace
}  // namespace temper::gguf_export_test
