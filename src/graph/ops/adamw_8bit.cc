// AdamW with bitsandbytes' states of 8 bits (Dettmers et al. 2022, "8-bit Optimizers via Block-wise Quantization"): a
// step is adamw's, to the bit, of moments that are read from blocks and rounded into them again
// (tensor/dynamic_blocks.h).
#include "graph/ops/adam.h"
#include "graph/ops/measured.h"
#include "graph/ops/rules.h"
#include "graph/ops/update.h"

namespace temper {
namespace {

Result<Types> Infer(const Types& in, const Attributes& a) {
  return InferUpdate(Op::kAdamw8bit, "(master, g, m in blocks, v in blocks, clip f32[2], scalars), dtype of a weight",
                     in, a);
}
// AdamW's, and for each moment a product to read it, the largest magnitude, a product and a comparison to round it.
Cost CostOfUpdate(const Types& in, const Types& out, const Attributes&) {
  return ElementwiseCost(in, out, 14 + 2 * 4);
}

constexpr AttributeSpec kAttributes[] = {Double("beta1"),
                                         Double("beta2"),
                                         Double("eps"),
                                         Double("weight_decay"),
                                         Flag("weight"),
                                         OptionalString("dtype"),
                                         OptionalDouble("lr_factor")};

constexpr FlowOperand kIn[] = {{"ABCD"}, {"ABCD"}, {"ABCD"}, {"ABCD"}, {""}, {""}};
constexpr FlowOutput kOut[] = {{"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}},
                               {"ABCD", {Factors({0, 1, 2, 3, 4, 5})}, "weight"}};
constexpr FlowRule kFlow = {.in = kIn, .out = kOut};

constexpr auto kInBlocks = UpdateState::Of::kElementInBlocks;
constexpr UpdateState kStates[] = {{.name = "adam8_m", .of = kInBlocks}, {.name = "adam8_v", .of = kInBlocks}};

// bitsandbytes' min_8bit_size; transformers' Trainer keeps tables in 32 bits.
bool Takes(const UpdatedValue& value) {
  return value.shape.elements() >= 4096 && !value.is_table;
}

constexpr UpdateRule kUpdate = {.name = "adamw_8bit",
                                .op = Op::kAdamw8bit,
                                .states = kStates,
                                .settings = kAdamSettings,
                                .help =
                                    "adamw with bitsandbytes' states of 8 bits, which take a quarter of the memory; "
                                    "tables of embeddings and values "
                                    "of fewer than 4096 elements keep f32 states",
                                .decay_help = "decoupled",
                                .other_names = "adamw_bnb_8bit",
                                .other_variants = "paged_adamw_8bit adamw_torch_8bit ao_adamw_8bit",
                                .states_are = "bitsandbytes' 8 bits",
                                .takes = Takes,
                                .rest = Op::kAdamw,
                                .fill_scalars = FillAdamScalars};

std::vector<MeasuredCase> Measured(DType dtype) {
  if (dtype != DType::kF32) return {};
  Attributes attributes = kUpdate.Settings();
  attributes.Set("weight_decay", 0.0);
  attributes.Set("weight", int64_t{0});
  return MeasuredAtExtents(dtype, attributes, [](const TensorType& x) {
    const TensorType blocks = kStates[0].TypeOf(x.shape);
    return Types{x, x, blocks, blocks, {DType::kF32, {2}}, {DType::kF64, {kNumScalars}}};
  });
}

}  // namespace

// An element depends on the others of its block.
const OpRule kAdamw8bitRule = {.kind = OpKind::kMemory,
                               .attributes = kAttributes,
                               .infer = Infer,
                               .flow = &kFlow,
                               .cost = CostOfUpdate,
                               .overwrites = UpdateOverwrites,
                               .update = &kUpdate,
                               .measured = Measured};

}  // namespace temper
