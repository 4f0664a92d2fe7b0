// What is packed for the products that read it gives the bits of row-major operands, on one rank and on meshes, with
// kernels that read panels in place and with their twins: frozen weights (compile/memory/pack_weights.h) after several
// steps of LoRA, for every family of models; trained ones and activations (pack_operands.h) after several of full
// fine-tuning.
#include <gtest/gtest.h>

#include <algorithm>

#include "graph/named_ops.h"
#include "graph/rule.h"
#include "thread_ranks.h"
#include "training_steps.h"

namespace temper::tiny::packed_weights_test {
namespace {

// The levels whose products read panels; where this processor has none, the one whose twins read them.
std::vector<Isa> LevelsWithPanels() {
  std::vector<Isa> levels;
  for (const Isa isa : RunnableIsas()) {
    if (ReadsPackedWeights(isa)) levels.push_back(isa);
  }
  return levels.empty() ? std::vector<Isa>{Isa::kScalar} : levels;
}

int CountOf(const Outcome& o, ElementLayout layout) {
  return static_cast<int>(
      std::count_if(o.buffers.begin(), o.buffers.end(), [&](const Buffer& b) { return b.type.layout == layout; }));
}

void ExpectSame(RunSpec spec, const std::vector<Isa>& levels) {
  spec.method = Method::kLora;
  spec.dtype = DType::kBF16;
  spec.dropout = 0.1;
  spec.through_text = true;
  for (const Isa isa : levels) {
    SCOPED_TRACE(std::string(ToString(isa)) + " " + spec.config.substr(0, 60));
    spec.isa = isa;
    spec.packing = PackedOperands::kNone;
    const auto rows = OnThreadRanks<Outcome>(spec, Train);
    spec.packing = PackedOperands::kAll;
    const auto packed = OnThreadRanks<Outcome>(spec, Train);
    for (size_t rank = 0; rank < rows.size(); ++rank) {
      ExpectSameResults(packed[rank], rows[rank]);
      EXPECT_EQ(CountOf(rows[rank], ElementLayout::kColumnPairs), 0);
      EXPECT_GT(CountOf(packed[rank], ElementLayout::kColumnPairs), 0);
      EXPECT_GT(CountOf(packed[rank], ElementLayout::kRowPairs), 0);
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

// Weights that something else reads, too (an embedding, a gather), or that are trained, stay as they are; each product
// reads the layout that its rule names.
TEST(PackedWeights, AreThoseThatOnlyProductsRead) {
  RunSpec spec{.config = LlamaConfigText(false), .method = Method::kLora, .dtype = DType::kBF16};
  spec.packing = PackedOperands::kAll;
  const TinyRun run(spec);
  std::map<Op, int> products;
  for (const Segment& segment : run.train().segments) {
    for (const Instruction& i : segment.instructions) {
      for (size_t k = 0; k < i.inputs.size(); ++k) {
        const TensorType& type = segment.operands[static_cast<size_t>(i.inputs[k])];
        const PackedInput reads = RuleOf(i.op).packed;
        if (!type.packed()) continue;
        const bool of_d_x =
            reads.of_gradient != nullptr && i.attributes.Flag(reads.of_gradient) && k + 1 == i.inputs.size();
        EXPECT_TRUE(of_d_x || static_cast<int>(k) == reads.input) << ToString(i.op);
        EXPECT_EQ(type.layout, of_d_x ? ElementLayout::kRowPairs : reads.layout) << ToString(i.op);
        products[i.op] += 1;
      }
    }
  }
  for (const Op op : {Op::kLinear, Op::kLinearDx, Op::kLinearCrossEntropy}) EXPECT_GT(products[op], 0) << ToString(op);
  for (const Buffer& b : run.train().buffers) {
    const bool of_product = b.name.find("embed") == std::string::npos && b.type.shape.rank() == 2;
    EXPECT_EQ(b.type.packed(), b.role == Role::kWeight && of_product) << b.name << " " << b.type.ToString();
  }
}

// Wide enough for products that are worth packing for (with 256 columns those of k and v, too); more rows than two
// chunks of the loss have.
RunSpec Full(int micro_batches, bool tied = false, int64_t hidden = 128) {
  return {.config = LlamaConfigText(tied, hidden, 2, 192),
          .dtype = DType::kBF16,
          .row = 96,
          .rows_per_micro_batch = 12,
          .micro_batches = micro_batches,
          .through_text = true};
}

void ExpectSameTraining(RunSpec spec, bool keeps, const std::vector<Isa>& levels) {
  for (const Isa isa : levels) {
    SCOPED_TRACE(ToString(isa));
    spec.isa = isa;
    if (isa == Isa::kScalar) spec.row = 16, spec.rows_per_micro_batch = 2;  // twins take minutes for more
    spec.packing = PackedOperands::kNone;
    const auto rows = OnThreadRanks<Outcome>(spec, Train);
    for (const PackedOperands packing : {PackedOperands::kInMicroBatch, PackedOperands::kAll}) {
      spec.packing = packing;
      const auto packed = OnThreadRanks<Outcome>(spec, Train);
      for (size_t rank = 0; rank < rows.size(); ++rank) {
        ExpectSameResults(packed[rank], rows[rank]);
        EXPECT_EQ(rows[rank].packings, 0);
        EXPECT_GT(packed[rank].packings, 0);
        if (isa == Isa::kScalar) continue;  // so few rows are not worth weights that stay packed
        EXPECT_EQ(CountOf(packed[rank], ElementLayout::kColumnPairs) > 0, keeps && packing == PackedOperands::kAll);
      }
    }
  }
}

TEST(PackedOperands, GiveTheBitsOfRowMajorOnes) {
  ExpectSameTraining(Full(1, false, 256), false, LevelsWithPanels());
  ExpectSameTraining(Full(3), true, LevelsWithPanels());
  ExpectSameTraining(Full(3, /*tied=*/true), true, LevelsWithPanels());
  RunSpec recomputed = Full(2);
  recomputed.recompute = Recompute::kBlock;
  ExpectSameTraining(recomputed, true, LevelsWithPanels());
  RunSpec cast = Full(2);
  cast.memory.matrices = TrainedMatrices::kCast;
  ExpectSameTraining(cast, false, LevelsWithPanels());
}

// fsdp and cp gather weights for each use: what products read are then no trained weights, and none stay packed.
TEST(PackedOperands, GiveTheBitsOfRowMajorOnesOnMeshes) {
  for (const Axis axis : {Axis::kDp, Axis::kFsdp, Axis::kTp, Axis::kCp, Axis::kPp}) {
    SCOPED_TRACE(ToString(axis));
    RunSpec spec = Full(3);
    spec.mesh.mesh.set_size(axis, 2);
    ExpectSameTraining(spec, axis != Axis::kFsdp && axis != Axis::kCp, LevelsWithPanels());
  }
}

}  // namespace
}  // namespace temper::tiny::packed_weights_test
