// OPT, 125m to 66b (Zhang et al. 2022; transformers, OPTForCausalLM): LayerNorm, learned positions offset by 2, ReLU
// (or GELU) blocks with biases. 350m differs: norms after the residual, and embeddings narrower than the blocks.
#include <fmt/core.h>

#include "model/families.h"

namespace temper {
namespace {

constexpr double kLayerNormEps = 1e-5;  // torch.nn.LayerNorm's default; OPT keeps it
// Rows 0 and 1 of the position table are left over from fairseq's padding; position p is row p + 2.
constexpr int64_t kPositionOffset = 2;

constexpr std::string_view kEmbedding = "model.decoder.embed_tokens.weight", kPrefix = "model.";
constexpr char kHead[] = "lm_head", kHeadWeight[] = "lm_head.weight";

struct OptConfig {
  ModelFacts facts;
  int64_t hidden = 0, ffn = 0, heads = 0, head_dim = 0;
  int64_t embed = 0;  // word_embed_proj_dim; differs from hidden if project_in/out exist
  bool pre_norm = true, bias = true, affine = true, final_norm = true, tied = true;
  bool gelu = false;
  double dropout = 0;  // in training, on the outputs of attention and MLP, before the residual sum
};

class Opt final : public Model {
 public:
  explicit Opt(OptConfig config) : c_(std::move(config)) { Declare(); }
  const ModelFacts& facts() const override { return c_.facts; }
  std::unique_ptr<Model> WithBlocks(std::span<const int> blocks) const override {
    OptConfig config = c_;
    config.facts.kinds.assign(blocks.size(), 0);
    return std::make_unique<Opt>(std::move(config));
  }

 private:
  void BuildForward(ForwardBuilder& f) const override;
  ValueId Block(ForwardBuilder& f, ValueId x_TD, int block) const;
  ValueId Norm(ForwardBuilder& f, ValueId x_TD, const std::string& module, const std::string& name) const {
    const int64_t D = c_.hidden;
    const ValueId w = c_.affine ? f.NormScale(module + ".weight", D) : f.Constant(1, {D});
    const ValueId b = c_.affine ? f.NormShift(module + ".bias", D) : f.Constant(0, {D});
    return f.LayerNorm(x_TD, w, b, kLayerNormEps, name);
  }
  std::vector<std::string> AliasesOf(const std::string& name) const override {
    std::vector<std::string> aliases;
    // In files of the first release, names start with "decoder." instead of "model.decoder.".
    if (name.starts_with(kPrefix)) aliases.push_back(name.substr(kPrefix.size()));
    if (c_.tied && name == kEmbedding) aliases.push_back(kHeadWeight);
    return aliases;
  }

  const OptConfig c_;
};

ValueId Opt::Block(ForwardBuilder& f, ValueId x_TD, int block) const {
  const std::string p = fmt::format("model.decoder.layers.{}.", block);
  const Dim D{DimLabel::kHidden, c_.hidden}, F{DimLabel::kFfn, c_.ffn};
  const Dim HE{DimLabel::kHeads, D.size}, KE{DimLabel::kKvHeads, D.size};
  f.EnterBlock(block, p);

  ValueId h = c_.pre_norm ? Norm(f, x_TD, p + "self_attn_layer_norm", "attn_norm") : x_TD;
  const ValueId q = f.Linear(h, p + "self_attn.q_proj", HE, D, c_.bias, "q");
  const ValueId k = f.Linear(h, p + "self_attn.k_proj", KE, D, c_.bias, "k");
  const ValueId v = f.Linear(h, p + "self_attn.v_proj", KE, D, c_.bias, "v");
  ValueId o = f.Attend(q, k, v, {c_.heads, c_.heads, c_.head_dim}, block, "attn");
  o = f.Linear(o, p + "self_attn.out_proj", D, HE, c_.bias, "attn_out");
  x_TD = f.Sum(x_TD, f.Dropout(o, c_.dropout, "attn_dropout"), "attn_residual");
  if (!c_.pre_norm) x_TD = Norm(f, x_TD, p + "self_attn_layer_norm", "attn_norm");

  h = c_.pre_norm ? Norm(f, x_TD, p + "final_layer_norm", "mlp_norm") : x_TD;
  h = f.Linear(h, p + "fc1", F, D, c_.bias, "fc1");
  h = c_.gelu ? f.Add(Op::kGelu, {h}, {{"tanh", int64_t{0}}}, "mlp")[0] : f.Add(Op::kRelu, {h}, {}, "mlp")[0];
  h = f.Linear(h, p + "fc2", D, F, c_.bias, "mlp_out");
  x_TD = f.Sum(x_TD, f.Dropout(h, c_.dropout, "mlp_dropout"), "mlp_residual");
  return c_.pre_norm ? x_TD : Norm(f, x_TD, p + "final_layer_norm", "mlp_norm");
}

void Opt::BuildForward(ForwardBuilder& f) const {
  const Dim D{DimLabel::kHidden, c_.hidden}, V{DimLabel::kVocab, c_.facts.vocab}, E{DimLabel::kEmbed, c_.embed};
  const Dim P{DimLabel::kPositions, c_.facts.max_positions + kPositionOffset};
  const std::string p = "model.decoder.";
  f.EnterBlock(kBlockBefore, p);
  const ValueId table = f.Weight(std::string(kEmbedding), {V, E});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  if (c_.embed != D.size) x = f.Linear(x, p + "project_in", D, E, false, "projected_in");
  const ValueId positions = f.Weight(p + "embed_positions.weight", {P, D});
  x = f.Sum(x, f.Embedding(positions, f.position(), kPositionOffset, "positions"), "input");
  for (size_t b = 0; b < c_.facts.kinds.size(); ++b) x = Block(f, x, static_cast<int>(b));
  f.EnterBlock(kBlockAfter, p);
  if (c_.final_norm) x = Norm(f, x, p + "final_layer_norm", "final_norm");
  if (c_.embed != D.size) x = f.Linear(x, p + "project_out", E, D, false, "projected_out");
  f.Head(x, c_.tied ? table : f.Weight(kHeadWeight, {V, E}), kHead);
}

}  // namespace

Result<std::unique_ptr<Model>> ReadOpt(const Json& config, const std::string& where) {
  OptConfig c;
  ModelFacts& f = c.facts;
  f.architecture = "OPTForCausalLM";
  f.positions_are_learned = true;
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", 50272, where));
  TEMPER_ASSIGN_OR_RETURN(c.hidden, IntOr(config, "hidden_size", 768, where));
  TEMPER_ASSIGN_OR_RETURN(const int64_t blocks, IntOr(config, "num_hidden_layers", 12, where));
  TEMPER_ASSIGN_OR_RETURN(c.heads, IntOr(config, "num_attention_heads", 12, where));
  TEMPER_ASSIGN_OR_RETURN(c.ffn, IntOr(config, "ffn_dim", 3072, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, "max_position_embeddings", 2048, where));
  TEMPER_ASSIGN_OR_RETURN(c.embed, IntOr(config, "word_embed_proj_dim", c.hidden, where));
  TEMPER_ASSIGN_OR_RETURN(f.initializer_range, NumberOr(config, "init_std", 0.02, where));
  TEMPER_ASSIGN_OR_RETURN(c.pre_norm, BoolOr(config, "do_layer_norm_before", true, where));
  TEMPER_ASSIGN_OR_RETURN(c.bias, BoolOr(config, "enable_bias", true, where));
  TEMPER_ASSIGN_OR_RETURN(c.affine, BoolOr(config, "layer_norm_elementwise_affine", true, where));
  TEMPER_ASSIGN_OR_RETURN(const bool removed, BoolOr(config, "_remove_final_layer_norm", false, where));
  c.final_norm = c.pre_norm && !removed;
  TEMPER_ASSIGN_OR_RETURN(c.tied, BoolOr(config, "tie_word_embeddings", true, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string activation, StringOr(config, "activation_function", "relu", where));
  if (activation != "relu" && activation != "gelu") {
    return Unsupported(fmt::format("{}: activation_function '{}'; supported are relu and gelu", where, activation));
  }
  c.gelu = activation == "gelu";
  if (!IsSane(f.vocab, kMaxRows) || !IsSane(c.hidden, kMaxWidth) || !IsSane(blocks, kMaxBlocks) ||
      !IsSane(c.ffn, kMaxWidth) || !IsSane(c.embed, kMaxWidth) || !IsSane(f.max_positions, kMaxRows) ||
      !IsSane(c.heads, kMaxHeads) || c.hidden % c.heads != 0) {
    return Corrupt(
        fmt::format("{}: a size is missing, not positive or out of range, or hidden_size {} is not a multiple of "
                    "num_attention_heads {}",
                    where, c.hidden, c.heads));
  }
  c.head_dim = c.hidden / c.heads;
  f.kinds.assign(static_cast<size_t>(blocks), 0);
  f.heads = {{DimLabel::kHeads, c.heads}, {DimLabel::kKvHeads, c.heads}};
  // If the file lacks the key: transformers' default.
  TEMPER_ASSIGN_OR_RETURN(c.dropout, ReadDropout(config, "dropout", 0.1, where, &f));
  for (const char* key : {"attention_dropout", "layerdrop"}) {
    TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, key, 0, where, &f));
  }
  return std::unique_ptr<Model>(std::make_unique<Opt>(std::move(c)));
}

}  // namespace temper
