// The bytes that a step sends to other ranks equal its strategy's formula, and the bytes
// that the communicators count. The formulas come from the strategies' definitions
// (docs/design/parallel.md), not from the graph: they only use the model's sizes.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <thread>

#include "../tiny_run.h"
#include "comm/local/local_communicator.h"

namespace temper::tiny::traffic_test {
namespace {

constexpr int64_t kHidden = 64, kBlocks = 3, kVocab = 160, kHeads = 4, kKvHeads = 2, kHeadDim = 16, kFfn = 128;
constexpr int64_t kRow = 32, kMicroBatches = 3, kRank = 4;
constexpr double kBf16 = 2, kF32 = 4;

// Elements of a Llama's weights, and of LoRA's on all linears except the head.
constexpr int64_t kAttention = kHidden * kHeadDim * (2 * kHeads + 2 * kKvHeads), kMlp = 3 * kHidden * kFfn;
constexpr int64_t kBlock = kAttention + kMlp + 2 * kHidden;
constexpr int64_t kOutside = 2 * kVocab * kHidden + kHidden;  // embeddings, head, last norm
constexpr int64_t kAdapters =
    kRank * ((kHidden + kHeads * kHeadDim) * 2 + (kHidden + kKvHeads * kHeadDim) * 2 + (kHidden + kFfn) * 3);

// Bytes that each of n ranks sends of a whole of that size.
double Part(double bytes, int n) {
  return bytes * (n - 1) / n;
}

RunSpec SpecOn(std::initializer_list<std::pair<Axis, int>> sizes, ResidualSplit residual = ResidualSplit::kTokens) {
  RunSpec spec{
      .config = LlamaConfigText(/*tied=*/false), .dtype = DType::kBF16, .row = kRow, .micro_batches = kMicroBatches};
  spec.mesh.residual = residual;
  spec.mesh.decisions = {
      .grad_sync = GradSync::kMicroBatch, .embedding = EmbeddingMove::kTable, .mlp = MlpMove::kActivations};
  for (const auto& [axis, size] : sizes) spec.mesh.mesh.set_size(axis, size);
  spec.rows_per_micro_batch = spec.mesh.mesh.size(DataAxes(spec.mesh.mesh));
  spec.threads = 1;
  return spec;
}

struct Counted {
  double planned = 0;       // bytes a rank sends, from the Program
  double sent = 0;          // counted by the communicator, in a step
  double moved = 0;         // actually read from other ranks' memory; mean of the ranks
  double unsupervised = 0;  // tokens that have no loss
};

// Of rank 0.
Counted Count(const RunSpec& spec) {
  const int ranks = spec.mesh.mesh.ranks();
  ThreadWorld world(ranks);
  Counted counted;
  std::atomic<int64_t> moved{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      RunSpec own = spec;
      own.mesh.rank = rank;
      const auto communicator = world.Join(rank);
      own.communicator = communicator.get();
      TinyRun run(own);
      Batch batch = run.MakeBatch(1);
      run.Step(batch);  // the second step is like all others
      const Bytes sent = communicator->bytes_sent(), read = communicator->bytes_moved();
      run.Step(batch);
      moved += (communicator->bytes_moved() - read).v;
      if (rank != 0) return;
      counted.sent = static_cast<double>((communicator->bytes_sent() - sent).v);
      counted.planned = static_cast<double>(CostOfStep(run.train()).sent.v);
      counted.unsupervised = static_cast<double>(std::count(batch.target.begin(), batch.target.end(), -1));
    });
  }
  for (std::thread& t : threads) t.join();
  counted.moved = static_cast<double>(moved) / ranks;
  return counted;
}

// `statistics`: the part for a token's loss if the vocabulary is
// split. Tokens without a loss are planned for, but not exchanged.
void ExpectTraffic(const RunSpec& spec, double formula, double statistics = 0) {
  SCOPED_TRACE(spec.mesh.mesh.ToString());
  const Counted counted = Count(spec);
  // Each collective of uneven parts may round a byte away.
  EXPECT_NEAR(counted.planned, formula, 1e-4 * formula) << "planned and formula differ";
  EXPECT_EQ(counted.sent, counted.planned - statistics * counted.unsupervised) << "counted and planned differ";
  // Sums of a few bytes are broadcast instead of passed around.
  EXPECT_NEAR(counted.moved, counted.sent, 0.02 * counted.sent) << "actually read";
}

// All-reduced in f64, once per step: the sum of squares of each tensor that is split over a group of n.
double NormTraffic(int64_t tensors, int n) {
  return 2 * Part(static_cast<double>(8 * tensors), n);
}
constexpr int64_t kTensors = kBlocks * 9 + 3, kAdapterTensors = kBlocks * 7 * 2;

// Weights of the last so many blocks stay gathered from their forward to their backward.
constexpr double GathersOfBlock(int64_t kept = 1) {
  return (2.0 * kBlocks - static_cast<double>(kept)) / kBlocks;
}
double Gathers(double block_bytes, double outside_bytes, int n, int64_t kept = 1) {
  return static_cast<double>(kMicroBatches) * Part(block_bytes * GathersOfBlock(kept) + outside_bytes, n);
}

TEST(Traffic, OfFullShardingIsTwoGathersExceptOfBlocksThatStayGatheredAndOneReduceScatter) {
  for (const int n : {2, 3}) {
    for (const int64_t kept : {int64_t{0}, int64_t{1}, int64_t{2}, kBlocks}) {
      RunSpec spec = SpecOn({{Axis::kFsdp, n}});
      if (kept != 1) spec.mesh.gathered_blocks = kept == kBlocks ? kAllBlocks : static_cast<int>(kept);
      const double all = kBlocks * kBlock + kOutside;
      ExpectTraffic(spec, Gathers(kBf16 * kBlocks * kBlock, kBf16 * kOutside, n, kept) +
                              kMicroBatches * Part(kF32 * all, n) + NormTraffic(kTensors, n));
    }
  }
}

TEST(Traffic, OfGradientsReducedOncePerStepIsOneReduceScatter) {
  RunSpec spec = SpecOn({{Axis::kFsdp, 2}});
  spec.mesh.decisions.grad_sync = GradSync::kStep;
  const double all = kBlocks * kBlock + kOutside;
  ExpectTraffic(
      spec, Gathers(kBf16 * kBlocks * kBlock, kBf16 * kOutside, 2) + Part(kF32 * all, 2) + NormTraffic(kTensors, 2));
}

// Instead of the table and its gradient: every token's index,
// its row in the forward and the row's gradient in the backward.
TEST(Traffic, OfEmbeddingsLookedUpByTheOwnersOfRowsIsTheRows) {
  const int n = 2;
  RunSpec spec = SpecOn({{Axis::kFsdp, n}});
  spec.mesh.decisions.embedding = EmbeddingMove::kRows;
  const double table = kVocab * kHidden, all = kBlocks * kBlock + kOutside - table;
  ExpectTraffic(spec, Gathers(kBf16 * kBlocks * kBlock, kBf16 * (kOutside - table), n) +
                          kMicroBatches * Part(kF32 * all, n) +
                          kMicroBatches * Part(n * kRow * (4 + 2 * kBf16 * kHidden), n) + NormTraffic(kTensors, n));
}

TEST(Traffic, OfLoraIsNothingForTheGradientsOfFrozenWeights) {
  RunSpec spec = SpecOn({{Axis::kFsdp, 2}});
  spec.method = Method::kLora;
  const double blocks = kBlocks * (kBlock + kAdapters);
  // Nothing before the first block is trained: its backward ends at q,
  // k and v, without their weights, their A and the norm before them.
  const double spared = kHidden * kHeadDim * (kHeads + 2 * kKvHeads) + 3 * kRank * kHidden + kHidden;
  ExpectTraffic(spec, Gathers(kBf16 * blocks, kBf16 * kOutside, 2) - kMicroBatches * Part(kBf16 * spared, 2) +
                          kMicroBatches * Part(kF32 * kBlocks * kAdapters, 2) + NormTraffic(kAdapterTensors, 2));
}

TEST(Traffic, OfDataParallelismIsTheGradientsOncePerStep) {
  const double all = kBlocks * kBlock + kOutside;
  ExpectTraffic(SpecOn({{Axis::kDp, 2}}), 2 * Part(kF32 * all, 2));
  RunSpec lora = SpecOn({{Axis::kDp, 2}});
  lora.method = Method::kLora;
  ExpectTraffic(lora, 2 * Part(kF32 * kBlocks * kAdapters, 2));
}

TEST(Traffic, OfHybridShardingIsThatOfFsdpAndThePartsOfGradientsOncePerStep) {
  const double all = kBlocks * kBlock + kOutside;
  ExpectTraffic(SpecOn({{Axis::kDp, 2}, {Axis::kFsdp, 2}}), Gathers(kBf16 * kBlocks * kBlock, kBf16 * kOutside, 2) +
                                                                kMicroBatches * Part(kF32 * all, 2) +
                                                                2 * Part(kF32 * all / 2, 2) + NormTraffic(kTensors, 2));
}

// T x D activations: 4 (n-1)/n of them forward and as much backward per block, whether they are summed up and kept
// whole or scattered and gathered. Before the blocks the same once (embeddings), after them once (the head).
TEST(Traffic, OfTensorParallelismIsFourActivationsForwardAndBackwardPerBlock) {
  const double activation = kBf16 * kRow * kHidden;
  const double of_token = (2 - 1) * 3 * kF32;  // largest, sum, target's
  const double statistics = kMicroBatches * kRow * of_token;
  const int64_t split = kBlocks * 7 + 2;  // all matrices
  // Norms have a part of the tokens: their gradients are added up.
  const double norms = 2 * Part(kF32 * (2 * kBlocks + 1) * kHidden, 2);
  ExpectTraffic(
      SpecOn({{Axis::kTp, 2}}),
      kMicroBatches * Part((8 * kBlocks + 2 + 2) * activation, 2) + norms + NormTraffic(split, 2) + statistics,
      of_token);
  // With all-reduces: two of them per sum, but none in the backward of the embeddings and the forward of the head.
  ExpectTraffic(SpecOn({{Axis::kTp, 2}}, ResidualSplit::kWhole),
                kMicroBatches * Part((8 * kBlocks + 2 + 2) * activation, 2) + NormTraffic(split, 2) + statistics,
                of_token);
}

// If the feed-forward part's weights are gathered instead, its activations
// stay: weights forward and backward, as under fsdp, and gradients once.
TEST(Traffic, OfTensorParallelismThatGathersTheFeedForwardIsItsWeights) {
  const double activation = kBf16 * kRow * kHidden;
  const double of_token = (2 - 1) * 3 * kF32, statistics = kMicroBatches * kRow * of_token;
  const double norms = 2 * Part(kF32 * (2 * kBlocks + 1) * kHidden, 2);
  RunSpec spec = SpecOn({{Axis::kTp, 2}});
  spec.mesh.decisions.mlp = MlpMove::kWeights;
  ExpectTraffic(
      spec,
      kMicroBatches * Part((4 * kBlocks + 2 + 2) * activation + (GathersOfBlock() * kBf16 + kF32) * kBlocks * kMlp, 2) +
          norms + NormTraffic(kBlocks * 7 + 2, 2) + statistics,
      of_token);
}

// Weights and gradients as under fsdp over all its ranks and cp's; keys and values of every other rank forward and
// backward; in the backward also their gradients, in f32, once around.
TEST(Traffic, OfContextParallelismIsThatOfFsdpAndTheKeysAndValuesOfARing) {
  for (const int n : {2, 4}) {
    const double all = kBlocks * kBlock + kOutside;
    const double keys_and_values = 2.0 * (kRow / n) * kKvHeads * kHeadDim;
    ExpectTraffic(SpecOn({{Axis::kCp, n}}),
                  Gathers(kBf16 * kBlocks * kBlock, kBf16 * kOutside, n) + kMicroBatches * Part(kF32 * all, n) +
                      kMicroBatches * kBlocks * keys_and_values * (2 * (n - 1) * kBf16 + n * kF32) +
                      NormTraffic(kTensors, n));
  }
}

// In each micro-batch an activation over every border between runs of blocks forward, and its gradient backward.
TEST(Traffic, OfAPipelineIsAnActivationPerBorderAndMicroBatch) {
  const double activation = kBf16 * kRow * kHidden;
  for (const PipelineKind kind :
       {PipelineKind::kOneForwardOneBackward, PipelineKind::kZeroBubble, PipelineKind::kGpipe}) {
    SCOPED_TRACE(ToString(kind));
    RunSpec spec = SpecOn({{Axis::kPp, 2}});
    spec.mesh.pipeline = {.kind = kind, .layers = {2, 1}};
    ExpectTraffic(spec, kMicroBatches * activation + NormTraffic(1, 2));
  }
  // Four runs of blocks on two stages: three borders; over each the
  // first stage sends something, in the forward or the backward.
  RunSpec interleaved = SpecOn({{Axis::kPp, 2}});
  interleaved.mesh.pipeline = {.kind = PipelineKind::kInterleaved, .chunks_per_stage = 2, .layers = {0, 1, 1, 1}};
  interleaved.micro_batches = 4;
  ExpectTraffic(interleaved, 4 * 3 * activation + NormTraffic(1, 2));
}

TEST(Traffic, OfAPipelineWithTiedEmbeddingsIsTheirGradientToo) {
  RunSpec spec = SpecOn({{Axis::kPp, 2}});
  spec.config = LlamaConfigText(/*tied=*/true);
  spec.mesh.pipeline.layers = {2, 1};
  ExpectTraffic(spec, kMicroBatches * kBf16 * kRow * kHidden + kF32 * kVocab * kHidden + NormTraffic(1, 2));
}

// A stage's weights once per step instead of forward and backward in each
// micro-batch (except the table, which only the forward reads); nothing else.
TEST(Traffic, OfAPipelineThatKeepsGatheredWeightsIsOneGatherPerStep) {
  RunSpec spec = SpecOn({{Axis::kPp, 2}, {Axis::kFsdp, 2}});
  spec.mesh.pipeline.layers = {2, 1};
  const Counted again = Count(spec);
  spec.mesh.gathered_blocks = kAllBlocks;
  const Counted once = Count(spec);
  const double blocks = kBf16 * 2 * kBlock, table = kBf16 * kVocab * kHidden;
  const double spared = kMicroBatches * Part(2 * blocks + table, 2) - Part(blocks + table, 2);
  EXPECT_NEAR(again.planned - once.planned, spared, 1e-4 * spared);
  for (const Counted& counted : {again, once}) EXPECT_EQ(counted.sent, counted.planned);
}

// A stage's gradients once per step instead of in each micro-batch: two blocks and the table.
TEST(Traffic, OfAPipelineThatReducesGradientsOncePerStepIsOneReduceScatter) {
  RunSpec spec = SpecOn({{Axis::kPp, 2}, {Axis::kFsdp, 2}});
  spec.mesh.pipeline.layers = {2, 1};
  const Counted each = Count(spec);
  spec.mesh.decisions.grad_sync = GradSync::kStep;
  const Counted once = Count(spec);
  const double spared = (kMicroBatches - 1) * Part(kF32 * (2 * kBlock + kVocab * kHidden), 2);
  EXPECT_NEAR(each.planned - once.planned, spared, 1e-4 * spared);
  for (const Counted& counted : {each, once}) EXPECT_EQ(counted.sent, counted.planned);
}

// q x q ranks (and d of these): every product gathers x over its row of ranks and w over its column; their gradients go
// back the same way; dW is added up over depth once per step.
TEST(Traffic, OfTwoDimensionalTensorParallelismIsSummas) {
  for (const int depth : {1, 2}) {
    const int q = 2;
    const double heads = kHeads * kHeadDim;
    // Per rank: rows of q x d parts, one per layer of ranks and row.
    const double x = kBf16 * kRow * (kHidden + heads + kHidden + kFfn);  // into q, k, v; o; gate, up; down
    const double edges = kBf16 * kRow * (kHidden + kHidden);             // out of the embeddings, into the head
    const double matrices = kBlocks * (kAttention + kMlp) + 2.0 * kVocab * kHidden;
    const double w = kBf16 * (GathersOfBlock() * kBlocks * (kAttention + kMlp) + 2.0 * kVocab * kHidden) / q;
    const double d_w = kF32 * matrices / q;
    const double norms = 2 * Part(kF32 * (2 * kBlocks + 1) * kHidden, q * q * depth);
    const double d_w_over_depth = 2 * Part(kF32 * matrices / (q * q), depth);
    const double of_token = (q - 1) * 3 * kF32, statistics = kMicroBatches * kRow * of_token;
    ExpectTraffic(SpecOn({{Axis::kDepth, depth}, {Axis::kRow, q}, {Axis::kTp, q}}, ResidualSplit::kHidden),
                  kMicroBatches * Part(2 * (kBlocks * x + edges) + w + d_w, q) + norms + d_w_over_depth +
                      NormTraffic(kBlocks * 7 + 2, q * q) + statistics,
                  of_token);
  }
}

// Beyond what the same ranks send with everything gathered over fsdp, but for experts, ranks of ep send each mixture's
// tokens: x and its gradient, the sums and theirs, in bf16; logits and their gradient; which tokens are present.
// Weights of experts stay where they are; all adapters are gathered alike.
TEST(Traffic, OfExpertParallelismIsTokensInsteadOfExperts) {
  constexpr int kN = 2;
  const auto on = [&](Axis axis) {
    RunSpec spec = SpecOn({{axis, kN}});
    spec.config = Qwen3MoeConfigText();
    spec.method = Method::kLora;
    return spec;
  };
  const Counted ep = Count(on(Axis::kEp)), fsdp = Count(on(Axis::kFsdp));
  EXPECT_EQ(ep.sent, ep.planned);
  EXPECT_NEAR(ep.moved, ep.sent, 0.02 * ep.sent);
  constexpr double kD = 64, kF = 48, kE = 6, kMixtures = 2;
  const double tokens = static_cast<double>(kMicroBatches * kMixtures * kRow) * kN;  // of all ranks
  const double of_tokens = Part(tokens * (4 * kD * kBf16 + 2 * kE * kBf16 + 4), kN);
  // The last block is a mixture, and stays gathered.
  const double of_experts = kMicroBatches * (2 * kMixtures - 1) * Part(3 * kE * kD * kF * kBf16, kN);
  EXPECT_NEAR(ep.planned - fsdp.planned, of_tokens - of_experts, 0.01 * of_experts);
}

}  // namespace
}  // namespace temper::tiny::traffic_test
