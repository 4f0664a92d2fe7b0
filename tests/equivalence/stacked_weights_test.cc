// A weight of three dims that stacks the matrices of several experts: files keep it as one tensor or as a tensor per
// expert. It is split among ranks, loaded, updated, saved and loaded alike.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/scratch_folder.h"
#include "checkpoint/checkpoint_folder.h"
#include "format/sharded_safetensors_writer.h"
#include "graph/named_ops.h"
#include "saving_rank.h"
#include "thread_ranks.h"

namespace temper::tiny::stacked_weights_test {
namespace {

constexpr int64_t kVocab = 48, kHidden = 16, kFfn = 24, kExperts = 4, kBlocks = 2;
constexpr int kSteps = 3;

std::string Prefix(int64_t block) {
  return fmt::format("layers.{}.", block);
}
std::string StackName(int64_t block, const std::string& name) {
  return Prefix(block) + "experts." + name + ".weight";
}
std::string MatrixName(int64_t block, const std::string& name, int64_t expert) {
  return Prefix(block) + fmt::format("experts.{}.{}.weight", expert, name);
}

// Blocks of two experts per token. `stacked`: files have one tensor of each stack, else one of each expert.
class Experts final : public Model {
 public:
  explicit Experts(bool stacked) : stacked_(stacked) {
    facts_.vocab = kVocab;
    facts_.max_positions = 256;
    facts_.kinds.assign(kBlocks, 0);
    Declare();
  }
  const ModelFacts& facts() const override { return facts_; }
  std::unique_ptr<Model> WithBlocks(std::span<const int>) const override { return nullptr; }  // no planner here

 private:
  Result<GgufModel> Describe() const override { return Unsupported("no family"); }
  void BuildForward(ForwardBuilder& f) const override {
    const Dim E{DimLabel::kExperts, kExperts}, F{DimLabel::kFfn, kFfn}, D{DimLabel::kHidden, kHidden},
        V{DimLabel::kVocab, kVocab};
    const Attributes active = {{"active", int64_t{2}}};
    ValueId x = f.Embedding(f.Weight("embedding", {V, D}), f.token(), 0, "embedded");
    for (int block = 0; block < kBlocks; ++block) {
      f.EnterBlock(block, Prefix(block));
      const auto stack = [&](const char* name, const Dim& out, const Dim& in) {
        const std::string whole = StackName(block, name);
        std::vector<FileTensor> tensors;
        for (int64_t e = 0; e < kExperts; ++e) {
          tensors.push_back({.name = MatrixName(block, name, e), .shape = {out.size, in.size}});
        }
        return f.Weight(whole, {E, out, in},
                        stacked_ ? WeightSource(FileTensor{.name = whole, .shape = {E.size, out.size, in.size}})
                                 : WeightSource::Stack(tensors));
      };
      const ValueId logits = f.Linear(x, f.Weight(Prefix(block) + "router", {E, D}), kNoValue, "logits");
      const auto routed = f.Add(Op::kRoute, {logits}, active, "route");
      const ValueId rows = f.Add(Op::kGatherRows, {x, routed[1]}, {}, "rows")[0];
      ValueId h = f.Add(Op::kGroupedLinear, {rows, stack("up", F, D), routed[2]}, active, "h")[0];
      h = f.Add(Op::kRelu, {h}, {}, "relu")[0];
      h = f.Add(Op::kGroupedLinear, {h, stack("down", D, F), routed[2]}, active, "y")[0];
      h = f.Add(Op::kCombine, {h, routed[1], routed[0]}, {{"weighted", int64_t{1}}}, "combined")[0];
      x = f.Sum(x, h, "sum");
    }
    f.Head(x, f.Weight("head", {V, D}), "head");
  }

  const bool stacked_;
  ModelFacts facts_;
};

// The numbers of an expert's matrix are the same in both layouts.
void WriteModel(const std::string& folder, const Model& model, DType dtype) {
  std::vector<TensorDeclaration> declared;
  for (const FileTensor& t : FileTensorsOf(model.StoredWeights())) declared.push_back({t.name, {dtype, t.shape}});
  auto writer = Must(ShardedSafetensorsWriter::Create(PosixEnv(), folder, declared));
  for (const StoredTensor& t : writer.order()) {
    std::vector<std::byte> bytes(static_cast<size_t>(t.elements() * SizeOf(dtype)));
    DispatchFloat(dtype, [&]<class T>() {
      const std::span<T> x(reinterpret_cast<T*>(bytes.data()), static_cast<size_t>(t.elements()));
      const bool stack = t.dims.size() == 3;
      const size_t matrix = stack ? x.size() / kExperts : x.size();
      for (size_t i = 0; i < x.size(); ++i) {
        std::string name = t.name;
        if (stack) name.insert(name.find("experts.") + 8, std::to_string(i / matrix) + ".");
        x[i] = FromFloat<T>(static_cast<float>(0.2 * NormalAt({.seed = 1, .name_hash = HashName(name)}, i % matrix)));
      }
    });
    Must(writer.Append(t.name, bytes));
  }
  Must(writer.Finish());
}

// All tensors of a checkpoint, those of stacks cut into the matrices that they stack.
Tensors MatricesOf(const std::string& folder) {
  Tensors tensors;
  for (auto& [name, saved] : TensorsOf(folder)) {
    if (saved.shape.rank() != 3) {
      tensors[name] = std::move(saved);
      continue;
    }
    const size_t at = name.find("experts."), matrix = saved.numbers.size() / kExperts;
    for (size_t e = 0; e < kExperts; ++e) {
      std::string of_expert = name;
      of_expert.insert(at + 8, std::to_string(e) + ".");
      const auto begin = saved.numbers.begin() + static_cast<int64_t>(e * matrix);
      tensors[of_expert] = {{saved.shape[1], saved.shape[2]}, {begin, begin + static_cast<int64_t>(matrix)}};
    }
  }
  return tensors;
}

struct Outcome {
  std::vector<double> losses;
  bool restored = false;  // a run that began with the saved state has the same bytes
};

// Trains `model` from the files of `base`, saving into `before` and `after`.
Outcome TrainAndSave(const RunSpec& spec, const Model& model, const std::string& base, const std::string& before,
                     const std::string& after) {
  SavingRank rank(spec, model.StoredWeights());
  rank.Load(base);
  rank.Save(before);
  Outcome outcome{.losses = rank.Train(kSteps)};
  rank.Save(after);
  SavingRank again(spec, model.StoredWeights());
  again.Restore(after);
  outcome.restored = again.Kept() == rank.Kept();
  return outcome;
}

struct MeshCase {
  const char* name;
  std::vector<std::pair<Axis, int>> sizes;
  ResidualSplit residual = ResidualSplit::kTokens;
  MemorySpec memory = {};
  friend void PrintTo(const MeshCase& c, std::ostream* out) { *out << c.name; }
};

class StackedWeights : public ::testing::TestWithParam<MeshCase> {};

TEST_P(StackedWeights, AreTrainedSavedAndLoadedAsTheirMatricesAre) {
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const Op optimizer : {Op::kAdamw, Op::kSgd}) {
      SCOPED_TRACE(std::string(ToString(dtype)) + " " + std::string(ToString(optimizer)));
      Outcome of[2];
      Tensors before[2], after[2];
      for (const bool stacked : {false, true}) {
        const Experts model(stacked);
        const ScratchFolder base, start, end;
        WriteModel(base.path(), model, dtype);
        // Clipping would add up squares in another order.
        RunSpec spec{.dtype = dtype,
                     .micro_batches = 2,
                     .optimizer = UpdateRuleOf(optimizer),
                     .settings = UpdateSettings(optimizer),
                     .max_norm = 0,
                     .memory = GetParam().memory,
                     .mesh = {.residual = GetParam().residual},
                     .model = [=] { return std::make_unique<Experts>(stacked); }};
        for (const auto& [axis, size] : GetParam().sizes) spec.mesh.mesh.set_size(axis, size);
        spec.rows_per_micro_batch = spec.data_ranks();
        const auto train = [&](const RunSpec& own) {
          return TrainAndSave(own, model, base.path(), start.path(), end.path());
        };
        const std::vector<Outcome> outcomes =
            spec.mesh.mesh.ranks() == 1 ? std::vector<Outcome>{train(spec)} : OnThreadRanks<Outcome>(spec, train);
        for (const Outcome& o : outcomes) EXPECT_TRUE(o.restored);
        of[stacked] = outcomes[0];
        before[stacked] = MatricesOf(CheckpointFolder(start.path(), 0));
        after[stacked] = MatricesOf(CheckpointFolder(end.path(), 0));
        // Saved as it was loaded: the tensors of the base, with their bits.
        const CheckpointReader saved = Must(CheckpointReader::Open(PosixEnv(), CheckpointFolder(start.path(), 0)));
        const ModelWeights files = Must(ModelWeights::Open(PosixEnv(), base.path()));
        for (const FileTensor& t : FileTensorsOf(model.StoredWeights())) {
          const auto entry = Must(files.Require(t.name));
          std::vector<float> want(static_cast<size_t>(t.shape.elements())), got(want.size());
          Must(entry.ReadElementsAs(0, DType::kF32, std::as_writable_bytes(std::span(want))));
          Must(saved.LoadTensor(t.name, View{reinterpret_cast<std::byte*>(got.data()), {DType::kF32, t.shape}}));
          EXPECT_TRUE(want == got) << t.name;
        }
      }
      EXPECT_EQ(of[true].losses, of[false].losses);
      EXPECT_TRUE(before[true] == before[false]);
      ASSERT_EQ(after[true].size(), after[false].size());
      for (const auto& [name, saved] : after[false]) {
        EXPECT_TRUE(after[true].at(name) == saved) << name;
        const auto it = before[false].find(name);
        EXPECT_TRUE(it == before[false].end() || !(it->second == saved)) << name << " was not updated";
      }
    }
  }
}

const MeshCase kMeshes[] = {
    {"one", {}},
    {"one_weights_at_host_states_on_disk",
     {},
     ResidualSplit::kTokens,
     {.weights = Tier::kHost, .optimizer = Tier::kDisk}},
    {"dp2", {{Axis::kDp, 2}}},
    {"fsdp2", {{Axis::kFsdp, 2}}},
    {"fsdp2_optimizer_at_host", {{Axis::kFsdp, 2}}, ResidualSplit::kTokens, {.optimizer = Tier::kHost}},
    {"tp2", {{Axis::kTp, 2}}},
    {"fsdp2_tp2", {{Axis::kFsdp, 2}, {Axis::kTp, 2}}},
};
INSTANTIATE_TEST_SUITE_P(Meshes, StackedWeights, ::testing::ValuesIn(kMeshes),
                         [](const auto& c) { return std::string(c.param.name); });

}  // namespace
}  // namespace temper::tiny::stacked_weights_test
