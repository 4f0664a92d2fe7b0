// Whatever tensors of a model's files values lie in, and however a mesh cuts and copies these values: what its ranks
// save has the tensors and bits that one rank saves, and any other mesh goes on from it.
#include <gtest/gtest.h>

#include "base/scratch_folder.h"
#include "model/lora.h"
#include "saving_rank.h"
#include "thread_ranks.h"

namespace temper::tiny::fused_save_test {
namespace {

struct Family {
  const char* name;
  std::string config;
  int64_t kv_heads;  // of four heads
};

// `text` with another number of KV heads.
std::string WithKvHeads(std::string text, int64_t kv_heads) {
  const std::string from = R"("num_key_value_heads": 2)";
  TEMPER_CHECK(text.find(from) != text.npos) << text;
  return text.replace(text.find(from), from.size(), fmt::format(R"("num_key_value_heads": {})", kv_heads));
}

// Gate and up in one tensor, q, k and v, with biases, in three.
std::string GlmConfigText() {
  return R"({"architectures": ["GlmForCausalLM"], "vocab_size": 160, "hidden_size": 64, "num_hidden_layers": 3,
      "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 16, "intermediate_size": 128,
      "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "pad_token_id": 0})";
}

std::vector<Family> Families() {
  return {{"Phi-3 with one KV head", WithKvHeads(Phi3ConfigText(), 1), 1},
          {"Phi-3 with two KV heads", Phi3ConfigText(), 2},
          {"GLM with one KV head", WithKvHeads(GlmConfigText(), 1), 1},
          {"GPT-NeoX", GptNeoXConfigText(), 4},  // q, k and v head by head
          {"GPT-2", Gpt2ConfigText(), 4}};       // transposed, tied
}

struct MeshCase {
  const char* name;
  std::vector<std::pair<Axis, int>> sizes;
  int64_t kv_heads = 0;  // 0: any number that tp divides
  ResidualSplit residual = ResidualSplit::kTokens;
};

const std::vector<MeshCase>& Meshes() {
  static const std::vector<MeshCase> meshes = {
      {"fsdp3", {{Axis::kFsdp, 3}}},
      {"tp2", {{Axis::kTp, 2}}},
      {"copy2", {{Axis::kCopy, 2}}, 1},
      {"copy4", {{Axis::kCopy, 4}}, 1},
      {"tp2_copy2", {{Axis::kTp, 2}, {Axis::kCopy, 2}}, 2},
      {"fsdp2_copy2", {{Axis::kFsdp, 2}, {Axis::kCopy, 2}}, 1},
      {"dp2_copy2", {{Axis::kDp, 2}, {Axis::kCopy, 2}}, 1},
      {"pp2_copy2", {{Axis::kPp, 2}, {Axis::kCopy, 2}}, 1},
      {"cp2_copy2", {{Axis::kCp, 2}, {Axis::kCopy, 2}}, 1},
      {"pp2_fsdp2", {{Axis::kPp, 2}, {Axis::kFsdp, 2}}},
      {"dp2_tp2", {{Axis::kDp, 2}, {Axis::kTp, 2}}},
      {"row2_tp2", {{Axis::kRow, 2}, {Axis::kTp, 2}}, 0, ResidualSplit::kHidden},
  };
  return meshes;
}

bool Fits(const Family& family, const MeshCase& mesh) {
  if (mesh.kv_heads != 0) return mesh.kv_heads == family.kv_heads;
  for (const auto& [axis, size] : mesh.sizes) {
    if (axis == Axis::kTp && family.kv_heads % size != 0) return false;
  }
  return true;
}

std::vector<StoredWeight> StoredBy(const Family& family, Method method) {
  const std::unique_ptr<Model> model = MakeModel(family.config);
  if (method == Method::kFull) return model->StoredWeights();
  return LoraWeights(Must(ResolveLora(model->modules(), {.r = 4, .alpha = 6})));
}

// On every rank of the mesh, at the same time.
void OnMesh(const MeshCase& mesh, RunSpec spec, const std::function<void(const RunSpec&)>& body) {
  spec.mesh = {.residual = mesh.residual};
  for (const auto& [axis, size] : mesh.sizes) spec.mesh.mesh.set_size(axis, size);
  spec.rows_per_micro_batch = spec.data_ranks();
  if (spec.mesh.mesh.ranks() == 1) return body(spec);
  OnThreadRanks<bool>(spec, [&](const RunSpec& own) {
    body(own);
    return true;
  });
}

class FusedSave : public ::testing::TestWithParam<Method> {};

TEST_P(FusedSave, OfAnyMeshHasTheBitsOfOneRankAndIsResumedByAnyOther) {
  for (const Family& family : Families()) {
    const std::vector<StoredWeight> stored = StoredBy(family, GetParam());
    const RunSpec spec{.config = family.config, .method = GetParam(), .row = 16, .micro_batches = 1};
    std::vector<std::unique_ptr<ScratchFolder>> folders;
    folders.push_back(std::make_unique<ScratchFolder>());
    SavingRank alone(spec, stored);
    (void)alone.Train(1);
    alone.Save(folders.back()->path());
    const Tensors expected = TensorsOf(CheckpointFolder(folders.back()->path(), 0));
    for (const MeshCase& mesh : Meshes()) {
      if (!Fits(family, mesh)) continue;
      SCOPED_TRACE(fmt::format("{} on {}", family.name, mesh.name));
      const std::string from = folders.back()->path();  // saved by the mesh before this one
      const std::string to = folders.emplace_back(std::make_unique<ScratchFolder>())->path();
      OnMesh(mesh, spec, [&](const RunSpec& own) {
        SavingRank rank(own, stored);
        rank.Restore(from);
        rank.Save(to);
      });
      EXPECT_TRUE(TensorsOf(CheckpointFolder(to, 0)) == expected) << "other tensors than one rank's";
    }
    const std::string last = folders.back()->path();
    SavingRank again(spec, stored);
    again.Restore(last);
    EXPECT_TRUE(again.Kept() == alone.Kept());
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, FusedSave, ::testing::Values(Method::kFull, Method::kLora),
                         [](const auto& method) { return method.param == Method::kFull ? "full" : "lora"; });

}  // namespace
}  // namespace temper::tiny::fused_save_test
