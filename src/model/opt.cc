#include "model/opt.h"

#include <fmt/core.h>

namespace temper {
namespace {

constexpr double kLayerNormEps = 1e-5;  // torch.nn.LayerNorm's default, which OPT does not change
// Row 0 and 1 of the position table are relics of fairseq's padding; position p is row p + 2.
constexpr int64_t kPositionOffset = 2;

class Opt final : public Model {
 public:
  explicit Opt(OptConfig config) : c_(std::move(config)) {}
  const ModelFacts& facts() const override { return c_.facts; }
  std::vector<WeightSpec> Weights() const override;

 private:
  void BuildForward(ForwardBuilder& f) const override;
  ValueId Block(ForwardBuilder& f, ValueId x_TD, int block) const;
  ValueId Norm(ForwardBuilder& f, ValueId x_TD, const std::string& module, const std::string& name) const {
    const Shape D = {c_.facts.hidden};
    const ValueId w = c_.affine ? f.Weight(module + ".weight", D) : f.Constant(1, D);
    const ValueId b = c_.affine ? f.Weight(module + ".bias", D) : f.Constant(0, D);
    return f.LayerNorm(x_TD, w, b, kLayerNormEps, name);
  }

  const OptConfig c_;
};

ValueId Opt::Block(ForwardBuilder& f, ValueId x_TD, int block) const {
  const std::string p = fmt::format("model.decoder.layers.{}.", block);
  const int64_t D = c_.facts.hidden;
  f.EnterBlock(block, p);

  ValueId h = c_.pre_norm ? Norm(f, x_TD, p + "self_attn_layer_norm", "attn_norm") : x_TD;
  const ValueId q = f.LinearModule(h, p + "self_attn.q_proj", D, c_.bias, "q");
  const ValueId k = f.LinearModule(h, p + "self_attn.k_proj", D, c_.bias, "k");
  const ValueId v = f.LinearModule(h, p + "self_attn.v_proj", D, c_.bias, "v");
  ValueId o = f.Attend(q, k, v, {c_.facts.heads, c_.facts.heads, c_.facts.head_dim}, block, "attn");
  o = f.LinearModule(o, p + "self_attn.out_proj", D, c_.bias, "attn_out");
  x_TD = f.Sum(x_TD, f.Dropout(o, c_.dropout, "attn_dropout"), "attn_residual");
  if (!c_.pre_norm) x_TD = Norm(f, x_TD, p + "self_attn_layer_norm", "attn_norm");

  h = c_.pre_norm ? Norm(f, x_TD, p + "final_layer_norm", "mlp_norm") : x_TD;
  h = f.LinearModule(h, p + "fc1", c_.ffn, c_.bias, "fc1");
  h = c_.gelu ? f.Add(Op::kGelu, {h}, {{"tanh", int64_t{0}}}, "mlp")[0] : f.Add(Op::kRelu, {h}, {}, "mlp")[0];
  h = f.LinearModule(h, p + "fc2", D, c_.bias, "mlp_out");
  x_TD = f.Sum(x_TD, f.Dropout(h, c_.dropout, "mlp_dropout"), "mlp_residual");
  return c_.pre_norm ? x_TD : Norm(f, x_TD, p + "final_layer_norm", "mlp_norm");
}

void Opt::BuildForward(ForwardBuilder& f) const {
  const int64_t D = c_.facts.hidden, V = c_.facts.vocab;
  const std::string p = "model.decoder.";
  f.EnterBlock(kBlockBefore, p);
  const ValueId table = f.Weight(p + "embed_tokens.weight", {V, c_.embed});
  ValueId x = f.Embedding(table, f.token(), 0, "embedded");
  if (c_.embed != D) x = f.LinearModule(x, p + "project_in", D, false, "projected_in");
  const ValueId positions = f.Weight(p + "embed_positions.weight", {c_.facts.max_positions + kPositionOffset, D});
  x = f.Sum(x, f.Embedding(positions, f.position(), kPositionOffset, "positions"), "input");
  for (int b = 0; b < c_.facts.blocks; ++b) x = Block(f, x, b);
  f.EnterBlock(kBlockAfter, p);
  if (c_.final_norm) x = Norm(f, x, p + "final_layer_norm", "final_norm");
  if (c_.embed != D) x = f.LinearModule(x, p + "project_out", c_.embed, false, "projected_out");
  f.Head(x, c_.tied ? table : f.Weight("lm_head.weight", {V, c_.embed}));
}

std::vector<WeightSpec> Opt::Weights() const {
  using Init = WeightSpec::Init;
  const int64_t D = c_.facts.hidden, V = c_.facts.vocab;
  std::vector<WeightSpec> w;
  // Files of the first release start "decoder." without "model.".
  const auto add = [&](const std::string& name, Shape shape, Init init) {
    w.push_back({"model." + name, shape, {name}, init});
  };
  const auto norm = [&](const std::string& module) {
    if (!c_.affine) return;
    add(module + ".weight", {D}, Init::kOne);
    add(module + ".bias", {D}, Init::kZero);
  };
  const auto linear = [&](const std::string& module, int64_t out, int64_t in, bool bias) {
    add(module + ".weight", {out, in}, Init::kNormal);
    if (bias) add(module + ".bias", {out}, Init::kZero);
  };
  add("decoder.embed_tokens.weight", {V, c_.embed}, Init::kNormal);
  if (c_.tied) w.back().aliases.push_back("lm_head.weight");
  if (c_.embed != D) linear("decoder.project_in", D, c_.embed, false);
  add("decoder.embed_positions.weight", {c_.facts.max_positions + kPositionOffset, D}, Init::kNormal);
  for (int64_t b = 0; b < c_.facts.blocks; ++b) {
    const std::string p = fmt::format("decoder.layers.{}.", b);
    norm(p + "self_attn_layer_norm");
    for (const char* name : {"q_proj", "k_proj", "v_proj", "out_proj"}) linear(p + "self_attn." + name, D, D, c_.bias);
    norm(p + "final_layer_norm");
    linear(p + "fc1", c_.ffn, D, c_.bias);
    linear(p + "fc2", D, c_.ffn, c_.bias);
  }
  if (c_.final_norm) norm("decoder.final_layer_norm");
  if (c_.embed != D) linear("decoder.project_out", c_.embed, D, false);
  if (!c_.tied) w.push_back({"lm_head.weight", {V, c_.embed}, {}, Init::kNormal});
  return w;
}

}  // namespace

Result<OptConfig> ReadOptConfig(const Json& config, const std::string& where) {
  OptConfig c;
  ModelFacts& f = c.facts;
  f.architecture = "OPTForCausalLM";
  f.positions_are_learned = true;
  TEMPER_ASSIGN_OR_RETURN(f.vocab, IntOr(config, "vocab_size", 50272, where));
  TEMPER_ASSIGN_OR_RETURN(f.hidden, IntOr(config, "hidden_size", 768, where));
  TEMPER_ASSIGN_OR_RETURN(f.blocks, IntOr(config, "num_hidden_layers", 12, where));
  TEMPER_ASSIGN_OR_RETURN(f.heads, IntOr(config, "num_attention_heads", 12, where));
  f.kv_heads = f.heads;
  TEMPER_ASSIGN_OR_RETURN(c.ffn, IntOr(config, "ffn_dim", 3072, where));
  TEMPER_ASSIGN_OR_RETURN(f.max_positions, IntOr(config, "max_position_embeddings", 2048, where));
  TEMPER_ASSIGN_OR_RETURN(c.embed, IntOr(config, "word_embed_proj_dim", f.hidden, where));
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
  const auto sane = [](int64_t n, int64_t most) { return n > 0 && n <= most; };
  if (!sane(f.vocab, kMaxRows) || !sane(f.hidden, kMaxWidth) || !sane(f.blocks, kMaxBlocks) ||
      !sane(c.ffn, kMaxWidth) || !sane(c.embed, kMaxWidth) || !sane(f.max_positions, kMaxRows) ||
      !sane(f.heads, kMaxHeads) || f.hidden % f.heads != 0) {
    return Corrupt(
        fmt::format("{}: a size is missing, zero, negative or absurd, or hidden_size {} is not a multiple of "
                    "num_attention_heads {}",
                    where, f.hidden, f.heads));
  }
  f.head_dim = f.hidden / f.heads;
  // transformers' own default, for a file that lacks the key.
  TEMPER_ASSIGN_OR_RETURN(c.dropout, NumberOr(config, "dropout", 0.1, where));
  if (!(c.dropout >= 0 && c.dropout < 1)) {
    return Corrupt(fmt::format("{}: dropout is {}, should be at least 0 and below 1", where, c.dropout));
  }
  if (c.dropout > 0) {
    f.training_notes.push_back(fmt::format(
        "dropout {} of {} is applied in training, as transformers does; 0 there switches it off", c.dropout, where));
  }
  TEMPER_RETURN_IF_ERROR(ReadUnusedDropout(config, {"attention_dropout", "layerdrop"}, where, &f));
  return c;
}

std::unique_ptr<Model> MakeOpt(OptConfig config) {
  return std::make_unique<Opt>(std::move(config));
}

}  // namespace temper
