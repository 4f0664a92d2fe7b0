// ForwardBuilder: builds a model's forward pass from the graph's ops and from weights, which are declared on first use.
// It hides the two differences between training and decoding: attention (documents of packed rows, or a cache) and the
// head (the loss of every supervised token, or the logits of some tokens).
#pragma once

#include <functional>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "graph/builder.h"
#include "model/weight.h"
#include "objective/objective.h"
#include "tensor/column.h"

namespace temper {

// What a forward pass ends in: hidden states after the last norm, the head's weight, the bias of the logits (kNoValue:
// none) and their cap (0: none).
struct HeadOperands {
  ValueId x_TD = kNoValue, w_VD = kNoValue, bias_V = kNoValue;
  double softcap = 0;
};

struct ForwardSpec {
  DType dtype = DType::kF32;  // of weights and activations
  int64_t tokens = 0;         // T: tokens of a micro-batch, rows flattened; S of a step when decoding
  int64_t row = 0;            // tokens of a packed row (T is a multiple); for cost estimates of attention
  int64_t cache = 0;          // > 0 builds a decoding step over a cache of that many tokens for each sequence
  int64_t sequences = 1;      // N, when decoding: those whose tokens a step may have
  bool training = false;      // with the dropout of the model's configuration
  // In training: noise on embeddings, uniform up to this / sqrt(row * their width), as NEFTune. 0: none.
  double neftune_noise_alpha = 0;
  // Of a model with experts: adds what tokens ask of them as an output, and the loss that balances it as a second root.
  bool counts_experts = false, balances_experts = false;
  // Whose tail of `graph` ends a graph without a cache.
  const ObjectiveRule* objective = &Sft();
  ProgramKind graph = ProgramKind::kTrain;
  ObjectiveSettings objective_settings = {};
  // In place of a tail: the graph ends here, and this is what a tail would have had. Not while decoding.
  HeadOperands* bare_head = nullptr;

  // The most tokens that a query can attend to.
  int64_t context() const { return cache > 0 ? cache : row > 0 ? row : tokens; }
};

// Names of the host-written inputs and the host-read outputs of a forward graph.
inline constexpr const char* kTokenInput = kTokenColumn.name;
inline constexpr const char* kTargetInput = kTargetColumn.name;
inline constexpr const char* kWeightInput = kWeightColumn.name;
inline constexpr const char* kPositionInput = kPositionColumn.name;
inline constexpr const char* kDocumentStartInput = kDocumentStartColumn.name;
inline constexpr const char* kDocumentLengthInput = kDocumentLengthColumn.name;  // if a rotary embedding goes by it
inline constexpr char kRngInput[] = "rng";  // i64[kNumRngWords], if an op draws random numbers
// Of decoding (graph/ops/attention_cached.cc): i32[S], i32[N, pages of a sequence], and i32[R], whose logits are made;
// without it, those of all tokens.
inline constexpr char kSlotInput[] = "slot";
inline constexpr char kPageTableInput[] = "page_table";
inline constexpr char kHeadRowsInput[] = "head_rows";
// Of training experts: f32[L, E], the tokens that chose each expert of each block that has some; the loss that balances
// them, f32[1]; and the input that is its gradient, f32[1].
inline constexpr char kExpertLoadOutput[] = "expert_load";
inline constexpr char kBalanceOutput[] = "aux_loss";
inline constexpr char kBalanceSeedInput[] = "aux_loss_seed";
inline constexpr char kLogitsOutput[] = "logits";       // f32[R, V], or f32[S, V]
inline constexpr char kCachePrefix[] = "cache.";        // of the names of caches
inline constexpr char kStatePrefix[] = "cache.state.";  // of those among them that are states of recurrences
// How many states of a recurrence are kept for `sequences` that are decoded: where there is one, a copy of its own, to
// which it can go back.
inline constexpr int64_t StatesOf(int64_t sequences) {
  return sequences == 1 ? 2 : sequences;
}

class ForwardBuilder : public GraphBuilder {
 public:
  using GraphBuilder::Linear;
  using Init = WeightDeclaration::Init;
  // Names of a module or a tensor that the forward pass calls `name`.
  struct Naming {
    // In the graph and for PEFT; also called for beginnings of names. Null: the same.
    std::function<std::string(const std::string& name)> in_graph;
    // In files: the name it is written under, then other names that it may be read under. Null: the same, no others.
    std::function<std::vector<std::string>(const std::string& name)> in_files;
  };

  ForwardBuilder(Graph* graph, const ForwardSpec& spec, Naming naming = {});

  // Declares an input that is made from data.
  ValueId Column(const ColumnSpec& column) { return TokenInput(column.name, column.dtype, spec_.tokens); }

  void EnterBlock(int block, const std::string& prefix) { GraphBuilder::EnterBlock(block, InGraph(prefix)); }

  // The source of a weight, declared on first use: the whole tensor of that name in the file. Dims in memory order.
  ValueId Weight(const std::string& name, std::initializer_list<Dim> dims, Init init = Init::kNormal);
  // The same for a weight that files store differently.
  ValueId Weight(const std::string& name, std::initializer_list<Dim> dims, WeightSource source,
                 Init init = Init::kNormal);
  // A weight whose row i is the tensor `tensors[i]`, [columns].
  ValueId StackedVectors(const std::string& name, std::span<const std::string> tensors, Dim rows, Dim columns,
                         Init init);
  // A parameter that PEFT takes for no linear module: its tensor in files, if it has another name there; the modules
  // that it was in older classes; its bias, if it has one.
  struct LinearParameter {
    std::string name, in_files = {};
    std::vector<std::string> module_names = {};
    std::string bias = {};
  };
  // y = x W^T (+ b)
  ValueId LinearOf(ValueId x_TI, LinearParameter parameter, Dim out, Dim in, const std::string& name);
  // A parameter that stacks matrices, of which a token passes `active`; adapters know it by its name. Its segments
  // (one: without a name) have a weight [matrices, out, in] each.
  struct StackSegment {
    const char *name, *in_files;
    Dim out;
  };
  // How files have the matrices.
  enum class StackFiles {
    kEach,   // matrix i of a segment as a tensor `<module>.<i>.<in_files>.weight`
    kOutIn,  // one tensor [matrices, out, in], in which the segments' rows follow each other
    kInOut,  // one tensor [matrices, in, out] of one segment
  };
  struct StackedParameter {
    std::string module, name;
    Dim matrices, in;
    int64_t active = 0;
    Init init = Init::kNormal;
    bool were_modules = true;  // in_files name modules of older classes, which adapters may name (LinearModule)
    StackFiles files = StackFiles::kEach;
    std::string tensor = {};  // of kOutIn and kInOut, where it is not `<module>.<name>`
  };
  std::vector<ValueId> Stacks(const StackedParameter& parameter, std::span<const StackSegment> segments);
  // The scale (`plus_one`: the norm scales by 1 + w) and the shift of a norm over `width` elements.
  ValueId NormScale(const std::string& name, int64_t width, bool plus_one = false) {
    return Weight(name, {{DimLabel::kNorm, width}}, plus_one ? Init::kZero : Init::kOne);
  }
  ValueId NormShift(const std::string& name, int64_t width) {
    return Weight(name, {{DimLabel::kNorm, width}}, Init::kZero);
  }

  // A learned number, [1], that begins as `value`.
  ValueId Number(const std::string& name, double value);
  // Numbers of the files that no method trains, f32[of].
  ValueId Fixed(const std::string& name, Dim of, Init init);
  // One of them, f32[1], which files have as a scalar.
  ValueId FixedScalar(const std::string& name, double value);
  // One of them: a factor for kScaleBy.
  ValueId Factor(const std::string& name) { return Fixed(name, {DimLabel::kNone, 1}, Init::kOne); }

  // A tensor with every element `n`, for norms without weights.
  ValueId Constant(int n, Shape shape);

  ValueId token() const { return token_; }
  ValueId position() const { return position_; }
  // The tokens of each token's document. The pass takes this input on first use.
  ValueId document_length();

  // y = x W^T [+ b] with weights "<module>.weight" [out, in] and "<module>.bias".
  ValueId Linear(ValueId x_TI, const std::string& module, Dim out, Dim in, bool bias, const std::string& name,
                 const ModuleLayout& layout = {}, Init init = Init::kNormal);
  // A fused projection: the rows of several products follow each other in "<module>.weight" (and in "<module>.bias").
  // Each has a weight "<module>.weight/<segment>". Returns their outputs, named after the segments.
  struct Segment {
    const char* name;
    Dim out;
  };
  // REQUIRES: groups divide the rows of each; several groups are not transposed.
  std::vector<ValueId> FusedLinear(ValueId x_TI, const std::string& module, std::initializer_list<Segment> segments,
                                   Dim in, bool bias, const ModuleLayout& layout = {});

  struct Heads {
    int64_t heads, kv_heads, head_dim;
    int64_t window = 0;      // tokens that a query attends to, itself included; 0: all
    double scale = 0;        // of scores; 0: 1 / sqrt(head_dim)
    double softcap = 0;      // scores s become softcap * tanh(s / softcap); 0: no cap
    int64_t v_head_dim = 0;  // of v and of the output; 0: head_dim
    std::string sink = {};   // a weight [heads]: a logit per head that joins the softmax without a value; "": none
    bool sinks_begin_at_zero = false;
    // ALiBi: of each head, what scores before their scale grow by with each key; empty: none. Rounded: to bf16, as the
    // places that they multiply (graph/ops/attention_heads.h).
    std::vector<double> slopes = {};
    bool rounded_slopes = false;
  };
  // In training, and in a step of decoding: those of its tokens, and the caches that have them.
  struct KeysValues {
    ValueId k, v;
    ValueId k_cache = kNoValue, v_cache = kNoValue;
  };
  // `block` names the caches. Where `kv` has caches, another block's attention has filled them and is only read; else
  // they are this block's, and `kv` gets them.
  ValueId Attend(ValueId q, KeysValues* kv, const Heads& heads, int block, const std::string& name);

  struct Taps {
    Dim channels;
    int64_t taps;
    bool bias = false, silu = false;
  };
  // A causal convolution of each channel along its document, with "<module>.weight" [channels, 1, taps] and
  // "<module>.bias". `block` names what decoding keeps.
  ValueId ShortConv(ValueId x_TC, const std::string& module, const Taps& taps, int block, const std::string& name);
  // Convolutions of several values, with silu, whose channels follow each other in "<module>.weight" (and in
  // "<module>.bias"). Each value becomes its convolution.
  struct ConvSegment {
    const char* name;
    ValueId* x_TC;
    Dim channels;
  };
  void FusedShortConv(const std::string& module, std::initializer_list<ConvSegment> segments, int64_t taps, bool bias,
                      int block);

  // The gated delta rule (graph/ops/gated_delta.cc). `block` names the state that decoding keeps.
  struct DeltaHeads {
    int64_t keys, values;
  };
  ValueId GatedDelta(ValueId q, ValueId k, ValueId v, ValueId g, ValueId b, const DeltaHeads& heads, int block,
                     const std::string& name);

  // The state-space duality of Mamba-2 (graph/ops/ssd.cc): operands (x, b, c, g, dt, d). `block` names the state that
  // decoding keeps.
  struct SsdHeads {
    int64_t heads, groups;
  };
  ValueId Ssd(std::vector<ValueId> operands, const SsdHeads& heads, int block, const std::string& name);

  // `x` times a factor that transformers keeps in the type of the weights, and so rounds.
  ValueId ScaleAsWeight(ValueId x, double factor, const std::string& name);

  // `x_TD`, embeddings, with the noise of the pass.
  ValueId Noise(ValueId x_TD, const std::string& name);

  // What tokens ask of the experts of one of `blocks` blocks that have some. `routed`: the outputs of route.
  void CountExperts(ValueId logits_TE, std::span<const ValueId> routed, int64_t block, int64_t blocks);

  // Sines and cosines of the token's position + `shift` times each frequency, [T, 2 * frequencies], in the pass's type.
  ValueId Sinusoids(const std::vector<double>& frequencies, int64_t shift, const std::string& name);

  // `x` itself unless the pass is for training and p > 0.
  ValueId Dropout(ValueId x, double p, const std::string& name);

  // Computes loss or logits from the final hidden states and the head's weight. `module`: PEFT's name of the head, even
  // if its weight is the embedding table. `softcap`: logits l become softcap * tanh(l / softcap); 0: no cap. `bias`:
  // logits are shifted by "<module>.bias".
  void Head(ValueId x_TD, ValueId w_VD, const std::string& module, double softcap = 0, bool bias = false);

  const ForwardSpec& spec() const { return spec_; }
  // In the order of first use.
  const std::vector<WeightDeclaration>& weights() const { return declared_; }
  const std::vector<LinearModule>& modules() const { return modules_; }

 private:
  std::string InGraph(const std::string& name) const { return naming_.in_graph ? naming_.in_graph(name) : name; }
  std::vector<std::string> InFiles(const std::string& name) const {
    return naming_.in_files ? naming_.in_files(name) : std::vector<std::string>{name};
  }
  ValueId Rng();
  void BalanceExperts();
  // What an op keeps from step to step of decoding, as its input; Keep says which value it becomes.
  ValueId State(const std::string& name, int block, const TensorType& type) {
    return Source(kCachePrefix + name + "." + std::to_string(block), type, Role::kCache);
  }
  // The same of a recurrence, whose state of one sequence has `dims`.
  ValueId RecurrentState(const std::string& name, int block, DType dtype, std::initializer_list<int64_t> dims) {
    Shape shape{StatesOf(spec_.sequences)};
    for (const int64_t size : dims) shape.Append(size);
    return Source(kStatePrefix + name + "." + std::to_string(block), {dtype, shape}, Role::kCache);
  }
  void Keep(ValueId state, ValueId after) { graph().value(after).updates = state; }
  // b_C: kNoValue for none.
  ValueId Convolved(ValueId x_TC, ValueId w_C1L, ValueId b_C, bool silu, const std::string& state, int block,
                    const std::string& name);
  FileTensor TensorOf(const std::string& name, Shape shape) const;
  ValueId AddFixed(WeightDeclaration weight);
  void AddModule(const std::string& path, std::span<const ValueId> weights, const ModuleLayout& layout = {});

  const ForwardSpec spec_;
  const Naming naming_;
  std::map<std::string, ValueId> weights_;
  std::vector<WeightDeclaration> declared_;
  std::vector<LinearModule> modules_;
  ValueId token_, position_, document_start_ = kNoValue, slot_ = kNoValue, rng_ = kNoValue;
  ValueId document_length_ = kNoValue, page_table_ = kNoValue;
  ValueId present_ = kNoValue, expert_load_ = kNoValue, router_sum_ = kNoValue;  // of the blocks so far
  int64_t active_ = 0;                                                           // experts of a token
};

}  // namespace temper
