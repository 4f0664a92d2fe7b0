// Frozen weights that are packed for the products that read them (compile/memory/pack_weights.h) give the bits of
// row-major ones: losses, gradient norms and adapters after several steps, for every family of models, on one rank and
// on meshes, with kernels that read panels in place and with their twins.
#include <gtest/gtest.h>

#include "graph/rule.h"
#include "thread_ranks.h"

namespace temper::tiny {
namespace {

struct Outcome {
  std::vector<float> losses;
  std::vector<double> norms;
  std::map<std::string, std::vector<std::byte>> adapters;
  Bytes arena, first_layouts, second_layouts;
};

Outcome Train(const RunSpec& spec) {
  TinyRun run(spec);
  Outcome o;
  const auto add_losses = [&] { o.losses.insert(o.losses.end(), run.losses().begin(), run.losses().end()); };
  for (uint64_t step = 0; step < 3; ++step) {
    Batch batch = run.MakeBatch(step);
    run.Step(batch);
    add_losses();
    o.norms.push_back(run.grad_norm());
  }
  Batch held_out = run.MakeBatch(100);
  run.Evaluate(held_out);
  add_losses();
  o.arena = run.train().arena_bytes;
  for (const Buffer& b : run.train().buffers) {
    if (b.role == Role::kAdapter) o.adapters[b.name] = run.BytesOf(b);
    if (b.type.layout == ElementLayout::kColumnPairs) o.first_layouts += b.type.bytes();
    if (b.type.layout == ElementLayout::kRowPairs) o.second_layouts += b.type.bytes();
  }
  return o;
}

// Where products read panels.
std::vector<Isa> LevelsWithPanels() {
  std::vector<Isa> levels;
  for (const Isa isa : RunnableIsas()) {
    if (ReadsPackedWeights(isa)) levels.push_back(isa);
  }
  return levels;
}

void ExpectSame(RunSpec spec, const std::vector<Isa>& levels) {
  spec.method = Method::kLora;
  spec.dtype = DType::kBF16;
  spec.dropout = 0.1;
  spec.through_text = true;
  for (const Isa isa : levels) {
    SCOPED_TRACE(std::string(ToString(isa)) + " " + spec.config.substr(0, 60));
    spec.isa = isa;
    spec.memory.packs = false;
    const auto rows = OnThreadRanks<Outcome>(spec, Train);
    spec.memory.packs = true;
    const auto packed = OnThreadRanks<Outcome>(spec, Train);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      EXPECT_EQ(packed[rank].losses, rows[rank].losses);
      EXPECT_EQ(packed[rank].norms, rows[rank].norms);
      EXPECT_EQ(packed[rank].adapters, rows[rank].adapters);
      EXPECT_EQ(rows[rank].first_layouts, Bytes{});
      EXPECT_GT(packed[rank].second_layouts, Bytes{});
    }
  }
}

TEST(PackedWeights, GiveTheBitsOfRowMajorOnes) {
  for (const std::string& config : {LlamaConfigText(true), LlamaConfigText(false), Phi3ConfigText(), Gemma2ConfigText(),
                                    Cohere2ConfigText(), GptNeoXConfigText(), OptConfigText(true)}) {
    ExpectSame({.config = config, .micro_batches = 2}, LevelsWithPanels());
  }
  ExpectSame({.micro_batches = 2, .recompute = Recompute::kBlock}, LevelsWithPanels());
}

TEST(PackedWeights, GiveTheBitsOfRowMajorOnesInTheirTwins) {
  ExpectSame({.micro_batches = 1}, {Isa::kScalar});
}

// A part of the rows or of the columns is packed on its own. fsdp and cp gather weights, which are then row-major.
TEST(PackedWeights, GiveTheBitsOfRowMajorOnesOnMeshes) {
  for (const Axis axis : {Axis::kDp, Axis::kTp, Axis::kPp}) {
    RunSpec spec{.config = LlamaConfigText(false), .micro_batches = 2};
    spec.mesh.mesh.set_size(axis, 2);
    spec.rows_per_micro_batch = spec.mesh.mesh.size(DataAxes(spec.mesh.mesh));
    SCOPED_TRACE(ToString(axis));
    ExpectSame(spec, LevelsWithPanels());
  }
}

// Weights that something else reads, too (an embedding, the head's loss, a gather), or that are trained, stay as they
// are; each product reads the layout that its rule names.
TEST(PackedWeights, AreThoseThatOnlyProductsRead) {
  RunSpec spec{.config = LlamaConfigText(false), .method = Method::kLora, .dtype = DType::kBF16};
  spec.memory.packs = true;
  const TinyRun run(spec);
  int products = 0;
  for (const Segment& segment : run.train().segments) {
    for (const Instruction& i : segment.instructions) {
      for (size_t k = 0; k < i.inputs.size(); ++k) {
        const TensorType& type = segment.operands[static_cast<size_t>(i.inputs[k])];
        const PackedInput reads = RuleOf(i.op).packed;
        if (!type.packed()) continue;
        EXPECT_EQ(static_cast<int>(k), reads.input) << ToString(i.op);
        EXPECT_EQ(type.layout, reads.layout) << ToString(i.op);
        ++products;
      }
    }
  }
  EXPECT_GT(products, 0);
  for (const Buffer& b : run.train().buffers) {
    const bool of_block = b.name.find("layers.") != std::string::npos && b.type.shape.rank() == 2;
    EXPECT_EQ(b.type.packed(), b.role == Role::kWeight && of_block) << b.name << " " << b.type.ToString();
  }
}

}  // namespace
}  // namespace temper::tiny
