// The head and its loss: chunks of supervised rows pass through logits, softmax and the gradients' products while they
// are in the cache as far as they fit; only a chunk of logits ever exists, and d_logits overwrite it. Where ranks share
// the vocabulary, they gather the statistics of a chunk's rows between its logits and its gradients.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <optional>
#include <vector>

#include "backend/cpu/attention/softmax_row.h"
#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/kernels.h"
#include "backend/cpu/products/distillation_row.h"
#include "backend/cpu/products/gemm.h"
#include "backend/cpu/products/loss_statistics.h"
#include "backend/cpu/vector/vector_kernels.h"
#include "base/team.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_operands.h"
#include "graph/ops/loss_scratch.h"
#include "tensor/element_layout.h"

namespace temper {
namespace {

// A weight as a product reads it: which input, and GemmOperands::b_format, b_columns and b_stride. Int8 rows become
// numbers where they are packed into panels.
struct WeightAt {
  int input = -1;
  ElementFormat format;
  int64_t columns = 0, stride = 0;
  bool packed = false;
};
WeightAt WeightAtOf(const KernelSpec& spec, int input) {
  const TensorType& w = spec.inputs[static_cast<size_t>(input)];
  WeightAt at = {.input = input, .format = w.dtype, .columns = w.shape[1], .stride = w.shape[1], .packed = w.packed()};
  if (at.packed) at.stride = PackedPanels(w.layout, w.shape[0], w.shape[1]).panel_bytes();
  if (w.dtype.quantised()) at.stride = w.dtype.RowBytes(w.shape[1]);
  return at;
}

// logits += x w^T, and where its gradients go.
struct Pair : LossOperands::Pair {
  int64_t depth = 0;  // columns of x and w
  WeightAt logits_w, d_x_w;
  Gemm logits, d_x_product, d_w_product;
};

// Of linear_distillation: the teacher's logits.
struct Teacher {
  int64_t depth = 0;  // columns of its hidden states
  WeightAt w;
  Gemm logits;
  RowDistillation row;
};

template <class T>
class LossKernel final : public Kernel {
 public:
  // `exchange`: with the ranks that share the vocabulary, or nullptr.
  LossKernel(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange> exchange)
      : operands_(spec.attributes),
        sign_(spec.op == Op::kTokenLogprob ? -1.0f : 1.0f),
        layout_(LossScratchOf(spec.inputs, spec.attributes, spec.threads)),
        threads_(spec.threads),
        tokens_(spec.inputs[0].shape[0]),
        vocabulary_(spec.inputs[1].shape[0]),
        first_word_(spec.attributes.IntOr("begin", 0)),
        all_words_(spec.attributes.IntOr("whole", vocabulary_)),
        labels_{spec.attributes.DoubleOr("smoothing", 0), all_words_},
        loss_{static_cast<float>(spec.attributes.DoubleOr("softcap", 0)),
              {static_cast<float>(labels_.smoothing), all_words_}},
        statistics_(LossStatisticsOf(spec.attributes)),
        vectors_(VectorsFor<T>(isa)),
        exchange_(std::move(exchange)) {
    const SoftmaxRowKernels& rows = isa >= Isa::kAvx512Bf16 ? kSoftmaxRowAvx512Bf16
                                    : isa == Isa::kAvx512   ? kSoftmaxRowAvx512
                                                            : kSoftmaxRowAvx2;
    if constexpr (std::is_same_v<T, float>) {
      rows_ = rows.f32;
    } else {
      rows_ = rows.bf16_;
    }
    const DistillationRowKernels& divergences = isa >= Isa::kAvx512 ? kDistillationRowAvx512 : kDistillationRowAvx2;
    if constexpr (std::is_same_v<T, float>) {
      divergence_ = divergences.f32;
    } else {
      divergence_ = divergences.bf16_;
    }
    const int64_t chunk = layout_.chunk, V = vocabulary_;
    const DType dtype = spec.inputs[0].dtype;
    if (operands_.teacher_x >= 0) {
      const Attributes& a = spec.attributes;
      Teacher& teacher = teacher_.emplace();
      teacher.depth = spec.inputs[static_cast<size_t>(operands_.teacher_x)].shape[1];
      teacher.w = WeightAtOf(spec, operands_.teacher_w);
      teacher.logits = Gemm(
          {.m = chunk, .n = V, .k = teacher.depth, .dtype = dtype, .out_dtype = dtype, .b_packed = teacher.w.packed},
          threads_, isa);
      teacher.row = {.temperature = static_cast<float>(a.Double("temperature")),
                     .beta = static_cast<float>(a.Double("beta")),
                     .cap = loss_.cap,
                     .teacher_cap = static_cast<float>(a.DoubleOr("teacher_softcap", 0))};
      TEMPER_CHECK(teacher.logits.workspace() <= layout_.product_bytes) << teacher.logits.workspace().v;
    }
    for (size_t p = 0; p < operands_.num_pairs; ++p) {
      Pair pair{operands_.pairs[p]};
      pair.depth = spec.inputs[static_cast<size_t>(pair.x)].shape[1];
      pair.logits_w = WeightAtOf(spec, pair.w);
      pair.d_x_w = WeightAtOf(spec, p == 0 && operands_.w_of_d_x >= 0 ? operands_.w_of_d_x : pair.w);
      pair.logits = Gemm(
          {.m = chunk, .n = V, .k = pair.depth, .dtype = dtype, .out_dtype = dtype, .b_packed = pair.logits_w.packed},
          threads_, isa);
      pair.d_x_product = Gemm({.m = chunk,
                               .n = pair.depth,
                               .k = V,
                               .dtype = dtype,
                               .out_dtype = dtype,
                               .b_k_contiguous = false,
                               .b_packed = pair.d_x_w.packed},
                              threads_, isa);
      pair.d_w_product =
          Gemm({.m = V, .n = pair.depth, .k = chunk, .dtype = dtype, .a_k_contiguous = false, .b_k_contiguous = false},
               threads_, isa);
      for (const Gemm* gemm : {&pair.logits, &pair.d_x_product, &pair.d_w_product}) {
        TEMPER_CHECK(gemm->workspace() <= layout_.product_bytes) << gemm->workspace().v;
      }
      pairs_.push_back(std::move(pair));
    }
    TEMPER_CHECK(kLossPiece == kSoftmaxPiece) << kSoftmaxPiece;
    TEMPER_CHECK(layout_.bytes <= spec.workspace) << layout_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const auto* target_T = reinterpret_cast<const int32_t*>(args.inputs[LossOperands::kTarget]);
    auto* row_T = reinterpret_cast<int32_t*>(args.workspace + layout_.rows.v);
    int64_t supervised = 0;
    for (int64_t t = 0; t < tokens_; ++t) {
      if (target_T[t] >= all_words_) {  // refused by all ranks before one waits for another
        return InvalidArgument("target " + std::to_string(target_T[t]) + " of row " + std::to_string(t) +
                               " is outside of the vocabulary of " + std::to_string(all_words_));
      }
      if (target_T[t] >= 0) row_T[supervised++] = static_cast<int32_t>(t);
    }
    exchanged_ = OkStatus();
    RunTeam(threads_, [&](TeamMember self) { RunInTeam(args, supervised, self); });
    return exchanged_;
  }

 private:
  // This member's part of [0, n).
  template <class Body>
  static void Divide(int64_t n, TeamMember self, const Body& body) {
    const int64_t end = n * (self.index + 1) / self.size;
    for (int64_t i = n * self.index / self.size; i < end; ++i) body(i);
  }

  T* GatheredOf(const KernelArgs& args, size_t p) const {
    return reinterpret_cast<T*>(args.workspace + layout_.gathered[p].v);
  }

  // Of a product with the pair's weight.
  static GemmOperands OperandsOf(const KernelArgs& args, const WeightAt& w, const T* a, int64_t a_stride,
                                 const TileOutput& out) {
    return {.a = a,
            .a_stride = a_stride,
            .b = args.inputs[w.input],
            .b_stride = w.stride,
            .output = out,
            .b_format = w.format,
            .b_columns = w.columns};
  }

  void RunInTeam(const KernelArgs& args, int64_t supervised, TeamMember self) {
    ClearUnsupervised(args, supervised, self);
    const auto* row_T = reinterpret_cast<const int32_t*>(args.workspace + layout_.rows.v);
    for (int64_t c = 0; c < NumLossChunks(layout_, supervised); ++c) {
      const int64_t begin = LossChunkBegin(layout_, supervised, c), end = LossChunkBegin(layout_, supervised, c + 1);
      if (!RunChunk(args, row_T + begin, end - begin, c == 0, self)) return;
    }
  }

  // What no supervised row will write.
  void ClearUnsupervised(const KernelArgs& args, int64_t supervised, TeamMember self) {
    const auto* target_T = reinterpret_cast<const int32_t*>(args.inputs[LossOperands::kTarget]);
    auto* loss_T = reinterpret_cast<float*>(args.outputs[LossOperands::kLoss]);
    Divide(tokens_, self, [&](int64_t t) {
      if (target_T[t] >= 0) return;
      loss_T[t] = 0;
      if (float* const correct = Correct(args)) correct[t] = 0;
      for (const Pair& pair : pairs_) {
        if (pair.d_x >= 0) {
          const size_t row = static_cast<size_t>(pair.depth) * sizeof(T);
          std::memset(args.outputs[pair.d_x] + static_cast<size_t>(t) * row, 0, row);
        }
      }
    });
    if (supervised > 0) return;
    for (const Pair& pair : pairs_) StartSum(args, pair.d_w, pair.acc, pair.depth, self);
    StartSum(args, operands_.d_bias, operands_.acc_bias, 1, self);
  }

  // Output `sum`, f32 [V, columns] (-1: not wanted), becomes what it is added to: input `acc`, or zero.
  void StartSum(const KernelArgs& args, int sum, int acc, int64_t columns, TeamMember self) const {
    if (sum < 0) return;
    const size_t row = static_cast<size_t>(columns) * sizeof(float);
    Divide(vocabulary_, self, [&](int64_t v) {
      std::byte* to = args.outputs[sum] + static_cast<size_t>(v) * row;
      if (acc < 0) {
        std::memset(to, 0, row);
      } else if (args.inputs[acc] != args.outputs[sum]) {
        std::memcpy(to, args.inputs[acc] + static_cast<size_t>(v) * row, row);
      }
    });
  }

  // Adds the n rows to d_bias, each column by one member, row by row: the size of a chunk changes no bit.
  void AddToBias(const KernelArgs& args, const T* d_logits_NV, int64_t n, bool first, TeamMember self) const {
    if (first) StartSum(args, operands_.d_bias, operands_.acc_bias, 1, self);
    auto* const d_bias_V = reinterpret_cast<float*>(args.outputs[operands_.d_bias]);
    const int64_t V = vocabulary_, end = V * (self.index + 1) / self.size;
    constexpr int64_t kColumns = 1024;  // whose sums stay in the L1 cache
    for (int64_t begin = V * self.index / self.size; begin < end; begin += kColumns) {
      const int64_t stop = std::min(begin + kColumns, end);
      for (int64_t i = 0; i < n; ++i) {
        vectors_.accumulate(d_logits_NV + i * V + begin, d_bias_V + begin, stop - begin);
      }
    }
  }

  // `rows`: the n tokens of this chunk. False where ranks could not exchange.
  bool RunChunk(const KernelArgs& args, const int32_t* rows, int64_t n, bool first, TeamMember self) {
    const int64_t V = vocabulary_;
    const DType dtype = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;
    T* logits_NV = reinterpret_cast<T*>(args.workspace + layout_.logits.v);
    std::byte* scratch = args.workspace + layout_.products.v;
    for (size_t p = 0; p < pairs_.size(); ++p) {
      const int64_t I = pairs_[p].depth;
      const T* x = reinterpret_cast<const T*>(args.inputs[pairs_[p].x]);
      Divide(n, self, [&](int64_t i) {
        std::memcpy(GatheredOf(args, p) + i * I, x + rows[i] * I, static_cast<size_t>(I) * sizeof(T));
      });
    }
    // The second pair first: the base product, added last in f32, is then rounded once.
    for (size_t p = pairs_.size(); p-- > 0;) {
      const Pair& pair = pairs_[p];
      TileOutput out = {.out = logits_NV, .out_stride = V, .out_dtype = dtype};
      if (p + 1 < pairs_.size()) {
        out.acc = logits_NV;
        out.acc_stride = V;
        out.acc_dtype = dtype;
      }
      if (p == 0 && operands_.bias >= 0) {
        out.bias = args.inputs[operands_.bias];
        out.bias_dtype = dtype;
      }
      pair.logits.RunInTeam(OperandsOf(args, pair.logits_w, GatheredOf(args, p), pair.depth, out),
                            {.m = n, .n = V, .k = pair.depth}, scratch, self);
    }
    if (teacher_) {
      T* teacher_NV = reinterpret_cast<T*>(args.workspace + layout_.teacher_logits.v);
      MakeTeacherLogits(args, rows, n, teacher_NV, scratch, self);
      TakeDivergence(args, rows, n, logits_NV, teacher_NV, self);
    } else if (exchange_ == nullptr) {
      TakeLoss(args, rows, n, logits_NV, self);
    } else if (!TakeSharedLoss(args, rows, n, logits_NV, self)) {
      return false;
    }
    if (!operands_.gradient) return true;

    if (operands_.d_bias >= 0) {
      self.Meet();  // rows were divided, columns are now
      AddToBias(args, logits_NV, n, first, self);
    }
    for (size_t p = 0; p < pairs_.size(); ++p) {
      const Pair& pair = pairs_[p];
      const int64_t I = pair.depth;
      if (pair.d_w >= 0) {
        // Chunks continue the sums of those before them: their size changes no bit.
        TileOutput out = {.out = args.outputs[pair.d_w], .out_stride = I, .start_stride = I, .goes_on = true};
        if (!first) {
          out.start = reinterpret_cast<const float*>(args.outputs[pair.d_w]);
        } else if (pair.acc >= 0) {
          out.start = reinterpret_cast<const float*>(args.inputs[pair.acc]);
        }
        pair.d_w_product.RunInTeam({logits_NV, V, GatheredOf(args, p), I, out}, {.m = V, .n = I, .k = n}, scratch,
                                   self);
      }
      if (pair.d_x >= 0) {
        // Over the gathered rows, which nothing needs any more.
        T* d_x_NI = GatheredOf(args, p);
        const TileOutput out = {.out = d_x_NI, .out_stride = I, .out_dtype = dtype};
        pair.d_x_product.RunInTeam(OperandsOf(args, pair.d_x_w, logits_NV, V, out), {.m = n, .n = I, .k = V}, scratch,
                                   self);
        T* d_x = reinterpret_cast<T*>(args.outputs[pair.d_x]);
        Divide(n, self,
               [&](int64_t i) { std::memcpy(d_x + rows[i] * I, d_x_NI + i * I, static_cast<size_t>(I) * sizeof(T)); });
      }
    }
    self.Meet();  // the next chunk overwrites what others still copy from
    return true;
  }

  void MakeTeacherLogits(const KernelArgs& args, const int32_t* rows, int64_t n, T* teacher_NV, std::byte* scratch,
                         TeamMember self) {
    const int64_t V = vocabulary_, E = teacher_->depth;
    const DType dtype = std::is_same_v<T, float> ? DType::kF32 : DType::kBF16;
    T* const gathered_NE = reinterpret_cast<T*>(args.workspace + layout_.teacher_gathered.v);
    const T* const y = reinterpret_cast<const T*>(args.inputs[operands_.teacher_x]);
    Divide(n, self,
           [&](int64_t i) { std::memcpy(gathered_NE + i * E, y + rows[i] * E, static_cast<size_t>(E) * sizeof(T)); });
    TileOutput out = {.out = teacher_NV, .out_stride = V, .out_dtype = dtype};
    if (operands_.teacher_bias >= 0) {
      out.bias = args.inputs[operands_.teacher_bias];
      out.bias_dtype = dtype;
    }
    teacher_->logits.RunInTeam(OperandsOf(args, teacher_->w, gathered_NE, E, out), {.m = n, .n = V, .k = E}, scratch,
                               self);
  }

  // As TakeLoss, of linear_distillation.
  void TakeDivergence(const KernelArgs& args, const int32_t* rows, int64_t n, T* logits_NV, const T* teacher_NV,
                      TeamMember self) {
    const int64_t V = vocabulary_;
    auto* loss_T = reinterpret_cast<float*>(args.outputs[LossOperands::kLoss]);
    Divide(n, self, [&](int64_t i) {
      const float weight = WeightOf(args, rows[i]);
      loss_T[rows[i]] =
          weight * divergence_(logits_NV + i * V, teacher_NV + i * V, V, teacher_->row, operands_.gradient, weight);
    });
  }

  // Losses of n rows; where gradients are wanted, logits become theirs.
  void TakeLoss(const KernelArgs& args, const int32_t* rows, int64_t n, T* logits_NV, TeamMember self) {
    const int64_t V = vocabulary_;
    const auto* target_T = reinterpret_cast<const int32_t*>(args.inputs[LossOperands::kTarget]);
    auto* loss_T = reinterpret_cast<float*>(args.outputs[LossOperands::kLoss]);
    float* exp_V = reinterpret_cast<float*>(args.workspace + layout_.exps.v + layout_.exp_bytes.v * self.index);
    Divide(n, self, [&](int64_t i) {
      const float weight = WeightOf(args, rows[i]);
      if (float* const correct = Correct(args)) {  // before gradients overwrite the logits
        correct[rows[i]] = rows_.top(logits_NV + i * V, V).word == target_T[rows[i]] ? weight : 0;
      }
      const float loss =
          rows_.cross_entropy(logits_NV + i * V, V, target_T[rows[i]], loss_, operands_.gradient, weight, exp_V);
      loss_T[rows[i]] = sign_ * weight * loss;
    });
  }

  // The same over the words of all ranks. False, for all members of the team, where the exchange failed.
  bool TakeSharedLoss(const KernelArgs& args, const int32_t* rows, int64_t n, T* logits_NV, TeamMember self) {
    const int64_t V = vocabulary_, ranks = exchange_->size();
    const auto* target_T = reinterpret_cast<const int32_t*>(args.inputs[LossOperands::kTarget]);
    auto* loss_T = reinterpret_cast<float*>(args.outputs[LossOperands::kLoss]);
    auto* mine_NS = reinterpret_cast<float*>(args.workspace + layout_.statistics.v);
    auto* all_RNS = reinterpret_cast<float*>(args.workspace + layout_.all_statistics.v);
    const auto word_of = [&](int64_t i) {
      const int64_t word = target_T[rows[i]] - first_word_;
      return word >= 0 && word < V ? word : -1;
    };
    Divide(n, self, [&](int64_t i) {
      const RowStatistics row = rows_.statistics(logits_NV + i * V, V, word_of(i), loss_);
      float* mine = mine_NS + i * statistics_.count();
      mine[kLossLargest] = row.largest;
      mine[kLossSum] = row.sum;
      mine[kLossTarget] = row.target;
      if (statistics_.smooth) mine[kLossLogits] = row.logits;
      if (statistics_.top) {
        const RowTop top = rows_.top(logits_NV + i * V, V);
        mine[statistics_.top_logit()] = top.logit;
        mine[statistics_.top_word()] = top.word < 0 ? -1.0f : static_cast<float>(first_word_ + top.word);
      }
    });
    self.Meet();
    if (self.index == 0) {
      const auto count = static_cast<size_t>(n * statistics_.count());
      exchanged_ = exchange_->AllGather({mine_NS, count}, {all_RNS, count * static_cast<size_t>(ranks)});
    }
    self.Meet();
    if (!exchanged_.ok()) return false;
    Divide(n, self, [&](int64_t i) {
      const RowOfLogits row = AddUpRow(all_RNS, ranks, n, i, statistics_, labels_);
      const float weight = WeightOf(args, rows[i]);
      loss_T[rows[i]] = sign_ * weight * static_cast<float>(row.loss);
      if (float* const correct = Correct(args)) correct[rows[i]] = row.top == target_T[rows[i]] ? weight : 0;
      if (operands_.gradient) {
        rows_.gradient(logits_NV + i * V, V, word_of(i), loss_, weight, static_cast<float>(row.largest),
                       static_cast<float>(row.sum));
      }
    });
    return true;
  }

  // Where it goes whether targets are the largest logits, or nullptr.
  float* Correct(const KernelArgs& args) const {
    return operands_.correct < 0 ? nullptr : reinterpret_cast<float*>(args.outputs[operands_.correct]);
  }

  // How much token `t` counts.
  float WeightOf(const KernelArgs& args, int64_t t) const {
    return operands_.weight < 0 ? 1.0f : reinterpret_cast<const float*>(args.inputs[operands_.weight])[t];
  }

  const LossOperands operands_;
  const float sign_;  // of what is stored: a log-probability is the loss with the other one
  const LossScratch layout_;
  const int threads_;
  const int64_t tokens_, vocabulary_;     // the words of this rank,
  const int64_t first_word_, all_words_;  // which begin here among all
  const SmoothLabels<double> labels_;
  const RowLoss loss_;
  const LossStatistics statistics_;  // per row that ranks exchange
  const VectorKernelsOf<T>& vectors_;
  const std::unique_ptr<Exchange> exchange_;
  Status exchanged_;  // the first error of a run; written by member 0 between barriers
  SoftmaxRowKernelsOf<T> rows_;
  DistillationRowFn<T> divergence_;
  std::optional<Teacher> teacher_;
  std::vector<Pair> pairs_;
};

}  // namespace

std::unique_ptr<Kernel> MakeLinearCrossEntropy(const KernelSpec& spec, Isa isa, std::unique_ptr<Exchange>&& exchange) {
  TEMPER_CHECK((exchange != nullptr) == spec.attributes.Has("axes")) << spec.attributes.ToString();
  const DType dtype = spec.inputs[0].dtype;
  if (spec.inputs[1].packed() && !ReadsPackedWeights(isa)) return nullptr;
  if (dtype == DType::kF32) return std::make_unique<LossKernel<float>>(spec, isa, std::move(exchange));
  if (dtype == DType::kBF16) return std::make_unique<LossKernel<bf16>>(spec, isa, std::move(exchange));
  return nullptr;
}

}  // namespace temper
