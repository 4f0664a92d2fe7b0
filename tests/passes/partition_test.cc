// A partitioned, differentiated model computes the same on every mesh as on one rank: losses and gradients of all
// models, with the ranks' graphs in lockstep.
#include "compile/mesh/partition.h"
#include "graph/named_ops.h"

#include <fmt/core.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/philox.h"
#include "compile/mesh/ring.h"
#include "compile/mesh/sharding_rules.h"
#include "compile/mesh/verify_sharding.h"
#include "compile/step/differentiate.h"
#include "compile/step/fuse.h"
#include "lockstep.h"
#include "model/families.h"
#include "model/lora.h"
#include "model/lora_rewrite.h"
#include "model/model.h"
#include "program/buffer_names.h"

namespace temper::partition_test {
namespace {

// Divides over 2, 3, 4 data ranks, and the result over 2 and 4 tensor ranks.
constexpr int64_t kTokens = 48;

struct ModelCase {
  const char* name;
  const char* config;
};

// Four heads of 8, a vocabulary and an ffn that divide unevenly, or into few.
constexpr ModelCase kModels[] = {
    {"tied Llama of 2 KV heads", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 44,
      "max_position_embeddings": 64, "tie_word_embeddings": true})"},
    {"Llama with biases", R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 51, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 44,
      "max_position_embeddings": 64, "attention_bias": true, "mlp_bias": true})"},
    {"OPT like the 125m", R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 44, "max_position_embeddings": 62,
      "activation_function": "gelu"})"},
    {"OPT like the 350m", R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "ffn_dim": 44, "max_position_embeddings": 62,
      "word_embed_proj_dim": 20, "do_layer_norm_before": false})"},
    {"OPT without biases and norm weights", R"({"architectures": ["OPTForCausalLM"], "vocab_size": 50,
      "hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 4, "ffn_dim": 44,
      "max_position_embeddings": 62, "enable_bias": false, "layer_norm_elementwise_affine": false,
      "tie_word_embeddings": false})"},
};

enum class Training { kFull, kLora, kLoraAndHead };
const char* ToString(Training t) {
  return t == Training::kFull ? "full" : t == Training::kLora ? "LoRA" : "LoRA and head";
}

struct MeshCase {
  const char* name;
  std::initializer_list<std::pair<Axis, int>> sizes;
  ResidualSplit residual = ResidualSplit::kTokens;
};

const MeshCase kMeshes[] = {
    {"fsdp2", {{Axis::kFsdp, 2}}},
    {"fsdp3", {{Axis::kFsdp, 3}}},
    {"dp2_fsdp2", {{Axis::kDp, 2}, {Axis::kFsdp, 2}}},
    {"tp2", {{Axis::kTp, 2}}},
    {"tp2_whole", {{Axis::kTp, 2}}, ResidualSplit::kWhole},
    {"fsdp2_tp2", {{Axis::kFsdp, 2}, {Axis::kTp, 2}}},
    {"tp2_copy2", {{Axis::kTp, 2}, {Axis::kCopy, 2}}},
    {"tp2_copy2_whole", {{Axis::kTp, 2}, {Axis::kCopy, 2}}, ResidualSplit::kWhole},
    {"fsdp2_tp2_copy2", {{Axis::kFsdp, 2}, {Axis::kTp, 2}, {Axis::kCopy, 2}}},
    {"row2_tp2", {{Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
    {"depth2_row2_tp2", {{Axis::kDepth, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
    {"fsdp2_row2_tp2", {{Axis::kFsdp, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
    {"row2_tp2_copy2", {{Axis::kRow, 2}, {Axis::kTp, 2}, {Axis::kCopy, 2}}, ResidualSplit::kHidden},
    {"cp2", {{Axis::kCp, 2}}},
    {"fsdp2_cp2", {{Axis::kFsdp, 2}, {Axis::kCp, 2}}},
    {"cp2_tp2", {{Axis::kCp, 2}, {Axis::kTp, 2}}},
    {"cp2_row2_tp2", {{Axis::kCp, 2}, {Axis::kRow, 2}, {Axis::kTp, 2}}, ResidualSplit::kHidden},
};

Mesh MeshOf(const MeshCase& c) {
  Mesh mesh;
  for (const auto& [axis, size] : c.sizes) mesh.set_size(axis, size);
  return mesh;
}

// A rank's rows are one packed row, whose tokens cp splits.
int64_t PackedRow(const Mesh& mesh) {
  return kTokens / mesh.size(DataAxes(mesh));
}

Graph ForwardOf(const ModelCase& model, Training training, int64_t row = kTokens, double dropout = 0.25) {
  const auto made = ModelFromConfig(*ParseJson(model.config, "config.json"), "config.json");
  TEMPER_CHECK(made.ok()) << made.status().message();
  Graph forward = (*made)->Forward({.dtype = DType::kF32, .tokens = kTokens, .row = row});
  if (training == Training::kFull) {
    TrainAllWeights(&forward);
    return forward;
  }
  LoraConfig lora{.r = 3, .alpha = 6};
  if (training == Training::kLoraAndHead) lora.target_modules = ".*";
  const auto targets = ResolveLora((*made)->modules(), lora);
  TEMPER_CHECK(targets.ok()) << targets.status().message();
  return AddLora(forward, *targets, dropout);
}

// Documents of the batch: they begin at ranks' first rows, and elsewhere. With cp, where rows may only be split along
// their length, they are longer than chunks and end within them.
struct Documents {
  int64_t row = 4, length = 4;
  static Documents On(const Mesh& mesh) {
    if (mesh.size(Axis::kCp) == 1) return {};
    return {PackedRow(mesh), 10};
  }
  int64_t StartOf(int64_t place) const { return place / row * row + place % row / length * length; }
};

// Values of the whole mesh, by name.
TestTensor GlobalSource(const Value& v, const Shape& shape, const Documents& documents) {
  const TensorType type{v.type.dtype, shape};
  TestTensor t(type);
  const RngKey key{.seed = 3, .name_hash = HashName(v.name)};
  if (v.name == kRngInput) {
    const int64_t rng[kNumRngWords] = {11, 5, 0};
    std::copy(rng, rng + kNumRngWords, reinterpret_cast<int64_t*>(t.data()));
    return t;
  }
  const bool norm = v.name.find("norm.weight") != std::string::npos;
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const auto u = [&] { return static_cast<double>(UniformAt(key, static_cast<uint64_t>(i))); };
    if (v.name == kDocumentStartInput) {
      t.Set(i, static_cast<double>(documents.StartOf(i)));
    } else if (v.name == kPositionInput) {
      t.Set(i, static_cast<double>(i - documents.StartOf(i)));
    } else if (v.name == kTargetInput) {
      t.Set(i, i % 5 == 4 ? -1 : std::floor(u() * 50));
    } else if (v.name == kTokenInput) {
      t.Set(i, std::floor(u() * 50));
    } else if (v.role == Role::kConstant) {
      t.Set(i, v.name.starts_with("constant.1") ? 1 : 0);
    } else {
      const double draw = NormalAt(key, static_cast<uint64_t>(i));
      t.Set(i, norm ? 1 + 0.1 * draw : draw / std::sqrt(static_cast<double>(shape.columns())));
    }
  }
  return t;
}

// As GlobalSource, kept: every rank of every mesh cuts its parts from the same values.
const TestTensor& KnownSource(const Value& v, const Shape& shape, const Documents& documents) {
  static std::map<std::string, TestTensor> known;
  const std::string key =
      fmt::format("{} {} {} {}", v.name, TensorType{v.type.dtype, shape}.ToString(), documents.row, documents.length);
  if (const auto it = known.find(key); it != known.end()) return it->second;
  return known.emplace(key, GlobalSource(v, shape, documents)).first->second;
}

// Element `i` of the box within the whole.
int64_t PlaceIn(const Shape& whole, const Box& box, int64_t i) {
  int64_t place = 0, scale = 1;
  for (int d = whole.rank(); d-- > 0;) {
    place += (box.begin[d] + i % box.shape[d]) * scale;
    i /= box.shape[d];
    scale *= whole[d];
  }
  return place;
}

// Rows [begin, ...) of the batch, for one rank.
Box RowsOf(const Mesh& mesh, int rank) {
  Sharding rows;
  rows.dims[0] = DataAxes(mesh).axes();
  return BoxOf({kTokens}, rows, mesh, rank);
}

// The token of the batch that is the rank's i-th.
int64_t TokenOf(const Mesh& mesh, int rank, int64_t i) {
  return RowsOf(mesh, rank).begin[0] + ContextPartOf(mesh, rank, PackedRow(mesh)).PlaceOf(i);
}

TestTensor LocalSource(const Mesh& mesh, int rank, const Value& v) {
  const Box rows = RowsOf(mesh, rank);
  Box box = {{}, v.type.shape};
  Shape whole = v.type.shape;
  if (v.shard) {
    box.begin = v.shard->begin;
    whole = v.shard->global;
  } else if (v.type.dtype == DType::kI32) {
    box = rows;
    whole = {kTokens};
  } else {
    for (int d = 0; d < whole.rank(); ++d) box.begin.Append(0);
  }
  const TestTensor& all = KnownSource(v, whole, Documents::On(mesh));
  const bool tokens = !v.shard && v.type.dtype == DType::kI32;
  TestTensor part(v.type);
  if (v.name == kRngInput) {
    part = all.Copy();
    reinterpret_cast<int64_t*>(part.data())[kRngFirstToken] = rows.begin[0];
    return part;
  }
  for (int64_t i = 0; i < v.type.shape.elements(); ++i) {
    const double x = all.Get(tokens ? TokenOf(mesh, rank, i) : PlaceIn(whole, box, i));
    part.Set(i, v.name == kDocumentStartInput ? x - static_cast<double>(rows.begin[0]) : x);
  }
  return part;
}

// A forward graph and one rank's results.
struct Whole {
  Graph forward;
  std::vector<Graph> graphs;
  std::unique_ptr<Lockstep> run;

  Whole(Graph f, const Documents& documents) : forward(std::move(f)), graphs({Differentiate(Fuse(forward), false)}) {
    run = std::make_unique<Lockstep>(
        Mesh(), graphs, [&](int, const Value& v) { return KnownSource(v, v.type.shape, documents).Copy(); });
    run->Run();
  }
  const TestTensor& Get(const std::string& name) const {
    const TestTensor* t = run->Find(0, name);
    TEMPER_CHECK(t != nullptr) << name;
    return *t;
  }
};

using Shardings = std::map<std::string, Sharding>;

// Partitions for every rank, runs all, and compares; returns the error if the shardings are refused.
Status CheckOnMesh(const Whole& whole, const Mesh& mesh, ResidualSplit residual, const Shardings& weights) {
  std::vector<Graph> graphs;
  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    auto local = Partition(whole.forward, {.mesh = mesh, .rank = rank, .residual = residual, .weights = &weights});
    if (!local.ok()) {
      EXPECT_EQ(rank, 0) << "only a later rank refuses: " << local.status().message();
      return local.status();
    }
    EXPECT_TRUE(Verify(*local).ok()) << Verify(*local).message();
    graphs.push_back(UpdateInPlace(LowerRings(Differentiate(Fuse(*local), false), {})));
    EXPECT_TRUE(Verify(graphs.back()).ok()) << Verify(graphs.back()).message();
  }
  Lockstep ranks(mesh, graphs, [&](int rank, const Value& v) { return LocalSource(mesh, rank, v); });
  ranks.Run();
  if (testing::Test::HasFailure()) return OkStatus();

  for (int rank = 0; rank < mesh.ranks(); ++rank) {
    const TestTensor& loss = *ranks.Find(rank, Sft().reports[0].output);
    for (int64_t t = 0; t < loss.type().shape[0]; ++t) {
      const double want = whole.Get(Sft().reports[0].output).Get(TokenOf(mesh, rank, t));
      EXPECT_NEAR(loss.Get(t), want, 2e-5 * (1 + want)) << "rank " << rank << " token " << t;
    }
  }
  // Gradients that are zero except for rounding (a bias of keys
  // shifts all scores of a row equally) are as exact as others.
  std::map<ValueId, double> size;
  double largest = 0;
  for (ValueId id = 0; id < graphs[0].num_values(); ++id) {
    if (!graphs[0].value(id).trainable) continue;
    const TestTensor& want = whole.Get(GradientName(graphs[0].value(id).name));
    for (int64_t i = 0; i < want.type().shape.elements(); ++i) size[id] = std::max(size[id], std::fabs(want.Get(i)));
    largest = std::max(largest, size[id]);
  }
  for (const auto& [id, own] : size) {
    const std::string gradient = GradientName(graphs[0].value(id).name);
    const TestTensor& want = whole.Get(gradient);
    const double allowed = 1e-5 * own + 1e-6 * largest;
    for (int rank = 0; rank < mesh.ranks(); ++rank) {
      const Value& weight = graphs[static_cast<size_t>(rank)].value(id);
      const Shard& shard = *weight.shard;
      double worst = 0;
      for (int64_t i = 0; i < weight.type.shape.elements(); ++i) {
        double sum = 0;
        for (int peer : mesh.Group(shard.partial, rank)) sum += ranks.Find(peer, gradient)->Get(i);
        const double error = std::fabs(sum - want.Get(PlaceIn(shard.global, {shard.begin, weight.type.shape}, i)));
        worst = error <= worst ? worst : error;
      }
      EXPECT_LE(worst, allowed) << gradient << " of rank " << rank << shard.ToString();
    }
  }
  EXPECT_FALSE(size.empty());
  return OkStatus();
}

class PartitionedModels : public testing::TestWithParam<int> {};

TEST_P(PartitionedModels, HaveTheLossesAndGradientsOfOneRank) {
  const MeshCase& c = kMeshes[GetParam()];
  const Mesh mesh = MeshOf(c);
  for (const ModelCase& model : kModels) {
    // Copies of keys and values: of fewer KV heads than ranks.
    const bool shares = mesh.size(Axis::kCopy) > 1;
    if (shares && std::string(model.config).find("OPT") != std::string::npos) continue;
    for (Training training : {Training::kFull, Training::kLora, Training::kLoraAndHead}) {
      SCOPED_TRACE(std::string(model.name) + " " + ToString(training));
      const Whole whole(ForwardOf(model, training, PackedRow(mesh)), Documents::On(mesh));
      const auto weights = ShardWeights(whole.forward, mesh, {}, c.residual);
      ASSERT_TRUE(weights.ok()) << weights.status().message();
      const Status status = CheckOnMesh(whole, mesh, c.residual, weights->shardings);
      ASSERT_TRUE(status.ok()) << status.message();
      ASSERT_FALSE(HasFailure());
    }
  }
}

// A user's rules may put any axis on any dim of any weight, in any order. They are either refused or right.
TEST_P(PartitionedModels, AreRightOrRefusedForAnyRules) {
  const MeshCase& c = kMeshes[GetParam()];
  const Mesh mesh = MeshOf(c);
  int accepted = 0, tried = 0;
  for (const ModelCase& model : kModels) {
    if (mesh.size(Axis::kCopy) > 1 && std::string(model.config).find("OPT") != std::string::npos) continue;
    for (Training training : {Training::kFull, Training::kLoraAndHead}) {
      const Whole whole(ForwardOf(model, training, PackedRow(mesh)), Documents::On(mesh));
      const auto defaults = ShardWeights(whole.forward, mesh, {}, c.residual);
      ASSERT_TRUE(defaults.ok()) << defaults.status().message();
      std::vector<std::string> names;
      for (const auto& [name, p] : defaults->shardings) names.push_back(name);
      const bool tensor = !(mesh.axes() & kTensorAxes).empty();  // else nothing is refused
      for (uint32_t seed = 0; seed < (tensor ? 14u : 4u); ++seed) {
        std::mt19937 engine(seed);
        const auto draw = [&](int n) { return static_cast<int>(engine() % static_cast<uint32_t>(n)); };
        Shardings weights = defaults->shardings;
        std::string changed;
        for (int changes = 1 + draw(3); changes > 0; --changes) {
          const std::string& name = names[static_cast<size_t>(draw(static_cast<int>(names.size())))];
          Sharding& p = weights.at(name);
          const int rank = whole.forward.value(whole.forward.FindSource(name)).type.shape.rank();
          for (const Axis axis : mesh.axes().axes()) {
            if (draw(3) == 0) continue;
            for (auto& axes : p.dims) axes.erase(std::remove(axes.begin(), axes.end(), axis), axes.end());
            const int dim = draw(rank + 1);
            if (dim == rank) continue;  // in none
            auto& axes = p.dims[static_cast<size_t>(dim)];
            axes.insert(axes.begin() + draw(static_cast<int>(axes.size()) + 1), axis);
          }
          changed += "\n  " + name + " " + p.ToString(rank);
        }
        SCOPED_TRACE(std::string(model.name) + " " + ToString(training) + changed);
        const Status status = CheckOnMesh(whole, mesh, c.residual, weights);
        ++tried;
        accepted += status.ok();
        ASSERT_FALSE(HasFailure());
      }
    }
  }
  EXPECT_GE(accepted * 6, tried) << "of " << tried << ": too few to prove anything";
}

// Sequence parallelism: between the products of a block no activation is whole.
TEST(PartitionedModel, NormsAndResidualsHaveAPartOfTheTokens) {
  Mesh mesh;
  mesh.set_size(Axis::kTp, 2);
  for (const ModelCase& model : kModels) {
    for (Training training : {Training::kFull, Training::kLoraAndHead}) {
      SCOPED_TRACE(std::string(model.name) + " " + ToString(training));
      const Graph forward = ForwardOf(model, training);
      const auto weights = ShardWeights(forward, mesh, {}, ResidualSplit::kTokens);
      const auto part = Partition(forward, {.mesh = mesh, .weights = &weights->shardings});
      ASSERT_TRUE(part.ok()) << part.status().message();
      int checked = 0;
      for (const Node& node : part->nodes()) {
        if (node.op != Op::kAdd && node.op != Op::kRmsNorm && node.op != Op::kLayerNorm) continue;
        if (node.block == kBlockBefore) continue;  // terms of token and position embeddings are added up once
        EXPECT_EQ(part->value(node.outputs[0]).type.shape[0], kTokens / 2) << part->value(node.outputs[0]).name;
        ++checked;
      }
      EXPECT_GT(checked, 2);
    }
  }
}

// Experts that are dealt to ranks (ep): in two blocks of two; in one behind an MLP, beside an expert of all tokens and
// with a bias that chooses.
constexpr ModelCase kMixtures[] = {
    {"Qwen 3 MoE", R"({"architectures": ["Qwen3MoeForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
      "intermediate_size": 44, "moe_intermediate_size": 20, "num_experts": 6, "num_experts_per_tok": 2,
      "norm_topk_prob": true, "max_position_embeddings": 64})"},
    {"GLM-4.5", R"({"architectures": ["Glm4MoeForCausalLM"], "vocab_size": 50, "hidden_size": 32,
      "num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 8,
      "intermediate_size": 44, "moe_intermediate_size": 20, "n_routed_experts": 6, "num_experts_per_tok": 2,
      "n_group": 2, "topk_group": 1, "n_shared_experts": 1, "first_k_dense_replace": 1, "norm_topk_prob": true,
      "max_position_embeddings": 64})"}};
const MeshCase kExpertMeshes[] = {
    {"ep2", {{Axis::kEp, 2}}},
    {"ep3", {{Axis::kEp, 3}}},
    {"fsdp2_ep2", {{Axis::kFsdp, 2}, {Axis::kEp, 2}}},
    {"dp2_ep2", {{Axis::kDp, 2}, {Axis::kEp, 2}}},
    {"ep2_tp2", {{Axis::kEp, 2}, {Axis::kTp, 2}}},
    {"ep2_tp2_whole", {{Axis::kEp, 2}, {Axis::kTp, 2}}, ResidualSplit::kWhole},
    {"cp2_ep2", {{Axis::kCp, 2}, {Axis::kEp, 2}}},
};

TEST(PartitionedMixtures, HaveTheLossesAndGradientsOfOneRank) {
  for (const ModelCase& model : kMixtures) {
    for (const MeshCase& c : kExpertMeshes) {
      if (&model != kMixtures && c.sizes.size() == 1) continue;  // the first has all
      const Mesh mesh = MeshOf(c);
      for (const Training training : {Training::kFull, Training::kLora}) {
        SCOPED_TRACE(fmt::format("{} {} on {}", model.name, ToString(training), c.name));
        const Whole whole(ForwardOf(model, training, PackedRow(mesh), /*dropout=*/0), Documents::On(mesh));
        const auto weights = ShardWeights(whole.forward, mesh, {}, c.residual);
        ASSERT_TRUE(weights.ok()) << weights.status().message();
        const Status status = CheckOnMesh(whole, mesh, c.residual, weights->shardings);
        ASSERT_TRUE(status.ok()) << status.message();
        ASSERT_FALSE(HasFailure());

        const auto local =
            Partition(whole.forward, {.mesh = mesh, .residual = c.residual, .weights = &weights->shardings});
        const Graph step = LowerRings(Differentiate(Fuse(*local), false), {});
        const Status proof = VerifyShardings(mesh, weights->shardings, std::vector{&step});
        EXPECT_TRUE(proof.ok()) << proof.message();
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Meshes, PartitionedModels, testing::Range(0, static_cast<int>(std::size(kMeshes))),
                         [](const auto& info) { return std::string(kMeshes[info.param].name); });

}  // namespace
}  // namespace temper::partition_test
