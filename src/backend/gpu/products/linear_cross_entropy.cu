// The head and its loss: chunks of supervised rows pass through logits, softmax and the gradients' products; only a
// chunk of logits ever exists, and d_logits overwrite it.
//
// A chunk always has layout.chunk rows, those beyond the last supervised one being zero, so that products have one
// shape. How many chunks there are the host counts in the targets that it has loaded: products of rows that are not
// supervised are none. Only where it has not loaded them it waits for the device to tell. Floor: the products' flops;
// beside them each logit is read twice and written once.
//
// Where ranks share the vocabulary, they gather the statistics of a chunk's rows between its logits and its gradients
// (graph/ops/loss_scratch.h), on the same stream.
//
// A weight of int8 rows becomes bf16 in scratch first, whole and once for all chunks, as in linear.cc.
#include <algorithm>

#include "backend/gpu/copy.h"
#include "backend/gpu/faults.h"
#include "backend/gpu/pointwise/column_sums.h"
#include "backend/gpu/products/dequantise.h"
#include "backend/gpu/products/matrix_product.h"
#include "device/device.h"
#include "graph/named_ops.h"
#include "graph/ops/loss_operands.h"
#include "graph/ops/loss_scratch.h"
#include "graph/ops/smooth_labels.h"

namespace temper::gpu {
namespace {

// row_T: the supervised tokens in their order; *count: how many. One block, whose threads take runs of tokens.
__global__ void CompactRows(const int* target_T, int64_t tokens, int64_t words, int* row_T, int64_t* count,
                            int64_t* fault) {
  TEMPER_SHARED(int, counts, kBlockThreads);
  const int64_t run = (tokens + kBlockThreads - 1) / kBlockThreads;
  const int64_t begin = int64_t{threadIdx.x} * run, end = begin + run < tokens ? begin + run : tokens;
  int mine = 0;
  for (int64_t t = begin; t < end; ++t) {
    if (target_T[t] >= words) *fault = 1 + t;
    mine += target_T[t] >= 0;
  }
  counts[threadIdx.x] = mine;
  __syncthreads();
  int64_t at = 0;
  for (int i = 0; i < static_cast<int>(threadIdx.x); ++i) at += counts[i];
  for (int64_t t = begin; t < end; ++t) {
    if (target_T[t] >= 0) row_T[at++] = static_cast<int>(t);
  }
  if (threadIdx.x == kBlockThreads - 1) *count = at;
}

// Row i of the chunk: x of its token, zero beyond the last. A block per row.
template <class T>
__global__ void GatherRows(const T* x_TI, const int* rows, int64_t n, int64_t I, T* gathered_NI) {
  const int64_t i = blockIdx.x;
  for (int64_t c = threadIdx.x; c < I; c += kBlockThreads) {
    Put(gathered_NI + i * I + c, i < n ? Get(x_TI + int64_t{rows[i]} * I + c) : 0.0f);
  }
}
template <class T>
__global__ void ScatterRows(const T* d_x_NI, const int* rows, int64_t I, T* d_x_TI) {
  const int64_t i = blockIdx.x;
  for (int64_t c = threadIdx.x; c < I; c += kBlockThreads) d_x_TI[int64_t{rows[i]} * I + c] = d_x_NI[i * I + c];
}

// What no supervised row will write. A block per token; d_x may be nullptr.
template <class T>
__global__ void ClearUnsupervised(const int* target_T, int64_t I, float* loss_T, T* d_x_TI) {
  const int64_t t = blockIdx.x;
  if (target_T[t] >= 0) return;
  if (threadIdx.x == 0) loss_T[t] = 0;
  if (d_x_TI == nullptr) return;
  for (int64_t c = threadIdx.x; c < I; c += kBlockThreads) Put(d_x_TI + t * I + c, 0.0f);
}

// From here on a thread looks at kCount neighbours of a row of logits at a time: at 16 bytes where rows begin at
// multiples of them, since with less a multiprocessor has too little on its way to fill the memory's.
template <int kCount>
__device__ int64_t FirstOfThread() {
  return int64_t{threadIdx.x} * kCount;
}
template <int kCount>
inline constexpr int64_t kNextOfThread = int64_t{kBlockThreads} * kCount;

// Where `cap` is not 0 logits are cap * tanh(x / cap) of what lies in memory.
__device__ inline float Capped(float x, float cap) {
  return cap == 0 ? x : cap * Tanh(x / cap);
}

// Of a row of logits, which the block looks at together: the largest, the sum of exp(logit - largest), and that of the
// logits.
template <class T, int kCount>
__device__ void SumOfRow(const T* logits_V, int64_t V, float cap, Shared<float> scratch, float* most, float* total,
                         float* logits) {
  float largest = -INFINITY, sum = 0, plain = 0;  // of this thread
  for (int64_t v = FirstOfThread<kCount>(); v < V; v += kNextOfThread<kCount>) {
    float x[kCount], here = largest;
    Load(logits_V + v, x);
    if (cap != 0) {
      for (int k = 0; k < kCount; ++k) x[k] = Capped(x[k], cap);
    }
    if (logits != nullptr) {
      for (int k = 0; k < kCount; ++k) plain += x[k];
    }
    for (int k = 0; k < kCount; ++k) here = Max()(x[k], here);
    if (here > largest) {
      sum *= Exp(largest - here);
      largest = here;
    }
    for (int k = 0; k < kCount; ++k) sum += Exp(x[k] - largest);
  }
  *most = ReduceBlock<Max, float>(largest, scratch);
  const float mine = largest > -INFINITY ? sum * Exp(largest - *most) : sum;  // NaN stays; no word is no sum
  *total = ReduceBlock<Sum, float>(mine, scratch);
  if (logits != nullptr) *logits = ReduceBlock<Sum, float>(plain, scratch);
}

// What this rank has to say of row i of the chunk, of whose words it has [begin, begin + V). A block per row.
template <class T, int kCount>
__global__ void RowStatistics(const T* logits_NV, const int* rows, const int* target_T, int64_t V, int64_t begin,
                              float cap, LossStatistics takes, float* statistics_NS) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t i = blockIdx.x;
  const T* const logits = logits_NV + i * V;
  float most, total, sum_of_logits = 0;
  SumOfRow<T, kCount>(logits, V, cap, scratch, &most, &total, takes.smooth ? &sum_of_logits : nullptr);
  if (threadIdx.x != 0) return;
  const int64_t own = target_T[rows[i]] - begin;
  float* const out = statistics_NS + i * takes.count();
  out[kLossLargest] = most;
  out[kLossSum] = total;
  out[kLossTarget] = own >= 0 && own < V ? Capped(Get(logits + own), cap) : -INFINITY;
  if (takes.smooth) out[kLossLogits] = sum_of_logits;
}

// How much token t counts; weight_T may be nullptr.
__device__ inline float WeightOf(const float* weight_T, int64_t t) {
  return weight_T == nullptr ? 1.0f : weight_T[t];
}

// The first of the largest logits of row i of the chunk, before any cap, a block each: whether it is the target, or
// where ranks share the vocabulary (`statistics_NS`), what this one has to say of its words [begin, begin + V). A pass
// of its own over the logits, so that the kernels of runs without it stay as they are. V <= kMostRankedWords.
template <class T, int kCount>
__global__ void TopOfRow(const T* logits_NV, const int* rows, const int* target_T, int64_t V, int64_t begin,
                         const float* weight_T, float* correct_T, LossStatistics takes, float* statistics_NS) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t i = blockIdx.x, t = rows[i];
  const T* const logits = logits_NV + i * V;
  float largest = -INFINITY;
  int64_t first = -1;  // this thread goes over words in their order
  for (int64_t v = FirstOfThread<kCount>(); v < V; v += kNextOfThread<kCount>) {
    float x[kCount];
    Load(logits + v, x);
    for (int k = 0; k < kCount; ++k) {
      if (!(x[k] > largest)) continue;
      largest = x[k];
      first = v + k;
    }
  }
  const float most = ReduceBlock<Max, float>(largest, scratch);
  const bool has_it = first >= 0 && largest == most;
  const float before = ReduceBlock<Max, float>(has_it ? -static_cast<float>(first) : -INFINITY, scratch);
  if (threadIdx.x != 0) return;
  const int64_t word = before > -INFINITY ? begin + static_cast<int64_t>(-before) : -1;
  if (statistics_NS == nullptr) {
    correct_T[t] = word == target_T[t] ? WeightOf(weight_T, t) : 0.0f;
    return;
  }
  float* const out = statistics_NS + i * takes.count();
  out[takes.top_logit()] = most;
  out[takes.top_word()] = static_cast<float>(word);
}

// From what all ranks say of the chunk's n rows: as AddUpRow in backend/cpu/products/loss_statistics.cc.
__global__ void CorrectOfRanks(const float* all_RNS, int64_t ranks, LossStatistics takes, const int* rows, int64_t n,
                               const int* target_T, const float* weight_T, float* correct_T) {
  const int64_t i = int64_t{blockIdx.x} * kBlockThreads + threadIdx.x;
  if (i >= n) return;
  float most = -INFINITY;
  int64_t top = -1;
  for (int64_t r = 0; r < ranks; ++r) {
    const float* const of = all_RNS + (r * n + i) * takes.count();
    const float logit = of[takes.top_logit()];
    const auto word = static_cast<int64_t>(of[takes.top_word()]);
    if (word < 0 || logit < most || (logit == most && top >= 0 && top < word)) continue;
    most = logit;
    top = word;
  }
  const int64_t t = rows[i];
  correct_T[t] = top == target_T[t] ? WeightOf(weight_T, t) : 0.0f;
}

template <class T, int kCount>
__device__ void ClearRow(T* row, int64_t V) {
  const float zero[kCount] = {};
  for (int64_t v = FirstOfThread<kCount>(); v < V; v += kNextOfThread<kCount>) Store(row + v, zero);
}

// A row of logits becomes its gradient: weight times softmax, of which scale is weight / sum, less weight times the
// labels; and times the slope of the cap.
template <class T, int kCount>
__device__ void GradientOfRow(T* logits_V, int64_t V, float cap, SmoothLabels<float> labels, float most, float scale,
                              float weight, int64_t target) {
  const float every = labels.every() * weight, more = labels.more() * weight;
  for (int64_t v = FirstOfThread<kCount>(); v < V; v += kNextOfThread<kCount>) {
    float x[kCount];
    Load(logits_V + v, x);
    for (int k = 0; k < kCount; ++k) {
      const float t = cap == 0 ? 0.0f : Tanh(x[k] / cap), logit = cap == 0 ? x[k] : cap * t;
      x[k] = Exp(logit - most) * scale - every - (v + k == target ? more : 0.0f);
      if (cap != 0) x[k] *= Fma(-t, t, 1.0f);
    }
    Store(logits_V + v, x);
  }
}

// As SoftmaxLoss, with the statistics of all ranks; the arithmetic is that of backend/cpu/products/loss_statistics.cc,
// alike on all of them.
template <class T, int kCount>
__global__ void SplitSoftmaxLoss(T* logits_NV, const int* rows, const int* target_T, int64_t n, int64_t V,
                                 int64_t begin, float cap, SmoothLabels<float> labels, LossStatistics takes,
                                 const float* all_RNS, int64_t ranks, bool gradient, const float* weight_T, float sign,
                                 float* loss_T) {
  const int64_t i = blockIdx.x;
  T* const logits = logits_NV + i * V;
  if (i >= n) {
    if (gradient) ClearRow<T, kCount>(logits, V);
    return;
  }
  const int64_t t = rows[i], target = target_T[t] - begin;
  double largest = -INFINITY, at_target = -INFINITY, sum = 0, sum_of_logits = 0;
  // A NaN is not larger than anything: it comes back through the sum.
  for (int64_t r = 0; r < ranks; ++r) {
    const float* const of = all_RNS + (r * n + i) * takes.count();
    if (of[kLossLargest] > largest) largest = of[kLossLargest];
    if (of[kLossTarget] > at_target) at_target = of[kLossTarget];
  }
  for (int64_t r = 0; r < ranks; ++r) {
    const float* const of = all_RNS + (r * n + i) * takes.count();
    sum += of[kLossSum] * exp(of[kLossLargest] - largest);
    if (takes.smooth) sum_of_logits += of[kLossLogits];
  }
  const float weight = WeightOf(weight_T, t);
  if (threadIdx.x == 0) {
    const double expected = labels.Expected(at_target, sum_of_logits);
    loss_T[t] = sign * weight * static_cast<float>(log(sum) + (largest - expected));
  }
  if (!gradient) return;
  const float scale = static_cast<float>(1 / sum) * weight;
  GradientOfRow<T, kCount>(logits, V, cap, labels, static_cast<float>(largest), scale, weight, target);
}

// Row i of the chunk's logits, a block each: sign times its loss, and (`gradient`) d_logits = softmax - onehot over
// them, both times its weight. Rows beyond n become zeros.
template <class T, int kCount>
__global__ void SoftmaxLoss(T* logits_NV, const int* rows, const int* target_T, int64_t n, int64_t V, float cap,
                            SmoothLabels<float> labels, bool gradient, const float* weight_T, float sign,
                            float* loss_T) {
  TEMPER_SHARED(float, scratch, kMostWarps);
  const int64_t i = blockIdx.x;
  T* const logits = logits_NV + i * V;
  if (i >= n) {
    if (gradient) ClearRow<T, kCount>(logits, V);
    return;
  }
  const int64_t t = rows[i], target = target_T[t];
  const float at_target = target < V ? Capped(Get(logits + target), cap) : 0;  // a target beyond has been reported
  float most, total, sum_of_logits = 0;
  SumOfRow<T, kCount>(logits, V, cap, scratch, &most, &total, labels.smoothing > 0 ? &sum_of_logits : nullptr);
  const float weight = WeightOf(weight_T, t);
  if (threadIdx.x == 0) {
    const auto expected = static_cast<float>(labels.Expected(at_target, sum_of_logits));
    loss_T[t] = sign * weight * (Log(total) + (most - expected));
  }
  if (!gradient) return;
  GradientOfRow<T, kCount>(logits, V, cap, labels, most, 1 / total * weight, weight, target);
}

// logits += x w^T, and where its gradients go.
struct Pair : LossOperands::Pair {
  int64_t depth = 0;  // columns of x and w
  std::unique_ptr<MatrixProduct> logits, d_x_product;
  std::unique_ptr<MatrixProduct> first_d_w, next_d_w;  // the next add to what the first wrote
};

template <class T>
class LossKernel final : public Kernel {
 public:
  static Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec, const Context& context) {
    const TensorType& w = spec.inputs[1];
    if (w.packed()) return Unsupported(std::string(ToString(spec.op)) + " of " + w.ToString() + " on GPUs");
    if (w.dtype.quantised() && !spec.attributes.Flag("dequantise")) {
      return Unsupported(std::string(ToString(spec.op)) + " of " + w.ToString() + " without scratch for its numbers");
    }
    auto made = std::make_unique<LossKernel>(spec, context);
    if (spec.attributes.Has("axes")) {
      if (context.exchange == nullptr)
        return Unsupported(std::string(ToString(spec.op)) + " over a vocabulary that ranks share");
      TEMPER_ASSIGN_OR_RETURN(const AxisSet axes, AxisSet::Parse(spec.attributes.String("axes")));
      TEMPER_ASSIGN_OR_RETURN(made->exchange_, context.exchange(axes));
      TEMPER_CHECK(made->exchange_->size() == spec.attributes.Int("ranks")) << made->exchange_->size() << " ranks";
    }
    TEMPER_RETURN_IF_ERROR(made->PlanPairs(spec, *context.products));
    return std::unique_ptr<Kernel>(std::move(made));
  }
  LossKernel(const KernelSpec& spec, const Context& context)
      : stream_(context.stream),
        copies_(*context.copies),
        operands_(spec.attributes),
        sign_(spec.op == Op::kTokenLogprob ? -1.0f : 1.0f),
        cap_(static_cast<float>(spec.attributes.DoubleOr("softcap", 0))),
        layout_(LossScratchOf(spec.inputs, spec.attributes, spec.threads)),
        tokens_(spec.inputs[0].shape[0]),
        w_(spec.inputs[1]),
        V_(w_.shape[0]),
        first_word_(spec.attributes.IntOr("begin", 0)),
        all_words_(spec.attributes.IntOr("whole", V_)),
        labels_{static_cast<float>(spec.attributes.DoubleOr("smoothing", 0)), all_words_},
        statistics_(LossStatisticsOf(spec.attributes)) {
    TEMPER_CHECK(layout_.bytes <= spec.workspace) << layout_.bytes.v << " of " << spec.workspace.v;
    fault_ = context.faults->Register([V = all_words_](int64_t word) {
      return "the target of row " + std::to_string(word - 1) + " is outside of the vocabulary of " + std::to_string(V);
    });
  }

  bool replayable() const override { return false; }  // there are as many chunks as the rows of this run need
  Status Run(const KernelArgs& args) override {
    const int* const target = In<const int>(args, LossOperands::kTarget);
    int* const row_T = reinterpret_cast<int*>(args.workspace + layout_.rows.v);
    int64_t supervised = 0;
    if (tokens_ > 0) {
      // The count lies where chunks have yet to put something.
      auto* const count = reinterpret_cast<int64_t*>(args.workspace + layout_.logits.v);
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH(CompactRows, 1u, unsigned{kBlockThreads}, stream_, target, tokens_,
                                           all_words_, row_T, count, fault_.get()));
      if (args.loaded != nullptr && args.loaded[LossOperands::kTarget] != nullptr) {
        const std::span loaded(reinterpret_cast<const int*>(args.loaded[LossOperands::kTarget]),
                               static_cast<size_t>(tokens_));
        supervised = std::count_if(loaded.begin(), loaded.end(), [](int t) { return t >= 0; });
      } else {
        TEMPER_RETURN_IF_ERROR(copies_.CopyToHost(reinterpret_cast<const std::byte*>(count),
                                                  std::as_writable_bytes(std::span(&supervised, 1))));
        TEMPER_RETURN_IF_ERROR(copies_.Synchronize());
      }
    }
    TEMPER_RETURN_IF_ERROR(Clear(args, supervised));
    if (w_.dtype.quantised() && supervised > 0) {
      TEMPER_RETURN_IF_ERROR(Dequantise(w_, args.inputs[1], args.workspace + layout_.numbers.v, stream_));
    }
    for (int64_t begin = 0; begin < supervised; begin += layout_.chunk) {
      TEMPER_RETURN_IF_ERROR(RunChunk(args, row_T + begin, std::min(layout_.chunk, supervised - begin), begin == 0));
    }
    return OkStatus();
  }

 private:
  Status PlanPairs(const KernelSpec& spec, MatrixProducts& products) {
    const DType dtype = spec.inputs[0].dtype;
    pairs_.resize(operands_.num_pairs);
    const int64_t N = layout_.chunk;
    for (size_t p = 0; p < pairs_.size(); ++p) {
      Pair& pair = pairs_[p];
      static_cast<LossOperands::Pair&>(pair) = operands_.pairs[p];
      pair.depth = spec.inputs[static_cast<size_t>(pair.x)].shape[1];
      const int64_t I = pair.depth;
      // The second pair comes first: the base product, added last in f32, is then rounded once.
      TEMPER_ASSIGN_OR_RETURN(pair.logits, products.Make({.m = N,
                                                          .n = V_,
                                                          .k = I,
                                                          .dtype = dtype,
                                                          .out_dtype = dtype,
                                                          .acc = p + 1 < pairs_.size(),
                                                          .bias = p == 0 && operands_.bias >= 0}));
      if (pair.d_x >= 0) {
        TEMPER_ASSIGN_OR_RETURN(
            pair.d_x_product,
            products.Make({.m = N, .n = I, .k = V_, .dtype = dtype, .out_dtype = dtype, .b_k_contiguous = false}));
      }
      if (pair.d_w < 0) continue;
      ProductShape d_w = {.m = V_,
                          .n = I,
                          .k = N,
                          .dtype = dtype,
                          .a_k_contiguous = false,
                          .b_k_contiguous = false,
                          .acc = pair.acc >= 0};
      TEMPER_ASSIGN_OR_RETURN(pair.first_d_w, products.Make(d_w));
      d_w.acc = true;
      TEMPER_ASSIGN_OR_RETURN(pair.next_d_w, products.Make(d_w));
    }
    return OkStatus();
  }

  Status Clear(const KernelArgs& args, int64_t supervised) {
    constexpr unsigned kThreads = kBlockThreads;
    for (const Pair& pair : pairs_) {
      T* const d_x = pair.d_x >= 0 ? Out<T>(args, pair.d_x) : nullptr;
      if (tokens_ > 0) {
        TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((ClearUnsupervised<T>), static_cast<unsigned>(tokens_), kThreads, stream_,
                                             In<const int>(args, LossOperands::kTarget), pair.depth,
                                             Out<float>(args, LossOperands::kLoss), d_x));
      }
      if (supervised == 0) TEMPER_RETURN_IF_ERROR(StartSum(args, pair.d_w, pair.acc, V_ * pair.depth));
    }
    if (operands_.correct >= 0) {
      TEMPER_RETURN_IF_ERROR(gpu::Clear(Out<float>(args, operands_.correct), tokens_, stream_));
    }
    return supervised == 0 ? StartSum(args, operands_.d_bias, operands_.acc_bias, V_) : OkStatus();
  }
  // Output `sum` of n f32 (-1: not wanted) becomes what it is added to: input `acc`, or zero.
  Status StartSum(const KernelArgs& args, int sum, int acc, int64_t n) {
    if (sum < 0) return OkStatus();
    return acc < 0 ? gpu::Clear(Out<float>(args, sum), n, stream_)
                   : Copy(args.inputs[acc], args.outputs[sum], Bytes{n * 4}, stream_);
  }

  // `rows`: the n tokens of this chunk.
  Status RunChunk(const KernelArgs& args, const int* rows, int64_t n, bool first) {
    constexpr unsigned kThreads = kBlockThreads;
    const auto chunk = static_cast<unsigned>(layout_.chunk);
    std::byte* const logits = args.workspace + layout_.logits.v;
    for (size_t p = pairs_.size(); p-- > 0;) {
      const Pair& pair = pairs_[p];
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((GatherRows<T>), chunk, kThreads, stream_, In<T>(args, pair.x), rows, n,
                                           pair.depth, Gathered(args, p)));
      TEMPER_RETURN_IF_ERROR(
          pair.logits->Run({.a = Bytes_(Gathered(args, p)),
                            .b = Weight(args, pair),
                            .acc = p + 1 < pairs_.size() ? logits : nullptr,
                            .bias = p == 0 && operands_.bias >= 0 ? args.inputs[operands_.bias] : nullptr,
                            .out = logits}));
    }
    TEMPER_RETURN_IF_ERROR(V_ % kPack<T> == 0 ? Losses<kPack<T>>(args, rows, n) : Losses<1>(args, rows, n));
    if (operands_.d_bias >= 0) {
      float* const d_bias = Out<float>(args, operands_.d_bias);
      const float* const before = !first                    ? d_bias
                                  : operands_.acc_bias >= 0 ? In<const float>(args, operands_.acc_bias)
                                                            : nullptr;
      TEMPER_RETURN_IF_ERROR(SumColumns<T>(reinterpret_cast<const T*>(logits), n, V_, before, d_bias, stream_));
    }
    for (size_t p = 0; p < pairs_.size(); ++p) {
      const Pair& pair = pairs_[p];
      std::byte* const gathered = Bytes_(Gathered(args, p));
      if (pair.d_w >= 0) {
        std::byte* const d_w = args.outputs[pair.d_w];
        const bool takes_acc = first && pair.acc >= 0;
        TEMPER_RETURN_IF_ERROR((first ? pair.first_d_w : pair.next_d_w)
                                   ->Run({.a = logits,
                                          .b = gathered,
                                          .acc = takes_acc ? args.inputs[pair.acc]
                                                 : first   ? nullptr
                                                           : d_w,
                                          .bias = nullptr,
                                          .out = d_w}));
      }
      if (pair.d_x < 0) continue;
      // Over the gathered rows, which nothing needs any more.
      TEMPER_RETURN_IF_ERROR(pair.d_x_product->Run(
          {.a = logits, .b = Weight(args, pair), .acc = nullptr, .bias = nullptr, .out = gathered}));
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((ScatterRows<T>), static_cast<unsigned>(n), kThreads, stream_,
                                           Gathered(args, p), rows, pair.depth, Out<T>(args, pair.d_x)));
    }
    return OkStatus();
  }

  // Of the chunk's rows; logits become d_logits.
  template <int kCount>
  Status Losses(const KernelArgs& args, const int* rows, int64_t n) {
    constexpr unsigned kThreads = kBlockThreads;
    const auto chunk = static_cast<unsigned>(layout_.chunk);
    T* const logits = reinterpret_cast<T*>(args.workspace + layout_.logits.v);
    const int* const target = In<const int>(args, LossOperands::kTarget);
    const float* const weight = operands_.weight < 0 ? nullptr : In<const float>(args, operands_.weight);
    float* const correct = operands_.correct < 0 ? nullptr : Out<float>(args, operands_.correct);
    float* const own = reinterpret_cast<float*>(args.workspace + layout_.statistics.v);
    if (correct != nullptr) {  // before gradients overwrite the logits
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((TopOfRow<T, kCount>), static_cast<unsigned>(n), kThreads, stream_, logits,
                                           rows, target, V_, first_word_, weight, correct, statistics_,
                                           exchange_ == nullptr ? nullptr : own));
    }
    if (exchange_ == nullptr) {
      return TEMPER_LAUNCH((SoftmaxLoss<T, kCount>), chunk, kThreads, stream_, logits, rows, target, n, V_, cap_,
                           labels_, operands_.gradient, weight, sign_, Out<float>(args, LossOperands::kLoss));
    }
    std::byte* const all = args.workspace + layout_.all_statistics.v;
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH((RowStatistics<T, kCount>), static_cast<unsigned>(n), kThreads, stream_,
                                         logits, rows, target, V_, first_word_, cap_, statistics_, own));
    TEMPER_RETURN_IF_ERROR(
        exchange_->AllGather(reinterpret_cast<const std::byte*>(own), all, Bytes{n * statistics_.count() * 4}));
    if (correct != nullptr) {
      TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH(CorrectOfRanks, static_cast<unsigned>((n + kThreads - 1) / kThreads),
                                           kThreads, stream_, reinterpret_cast<const float*>(all),
                                           int64_t{exchange_->size()}, statistics_, rows, n, target, weight, correct));
    }
    return TEMPER_LAUNCH((SplitSoftmaxLoss<T, kCount>), chunk, kThreads, stream_, logits, rows, target, n, V_,
                         first_word_, cap_, labels_, statistics_, reinterpret_cast<const float*>(all),
                         int64_t{exchange_->size()}, operands_.gradient, weight, sign_,
                         Out<float>(args, LossOperands::kLoss));
  }

  T* Gathered(const KernelArgs& args, size_t p) const {
    return reinterpret_cast<T*>(args.workspace + layout_.gathered[p].v);
  }
  // The numbers of the pair's weight.
  const std::byte* Weight(const KernelArgs& args, const Pair& pair) const {
    const bool dequantised = pair.w == 1 && w_.dtype.quantised();
    return dequantised ? args.workspace + layout_.numbers.v : args.inputs[pair.w];
  }
  static std::byte* Bytes_(T* x) { return reinterpret_cast<std::byte*>(x); }

  const gpuStream_t stream_;
  Stream& copies_;
  const LossOperands operands_;
  const float sign_;  // of what is stored: a log-probability is the loss with the other one
  const float cap_;   // of logits; 0: none
  const LossScratch layout_;
  const int64_t tokens_;
  const TensorType w_;                        // of the first pair
  const int64_t V_, first_word_, all_words_;  // of this rank's V words the first, and how many all have
  const SmoothLabels<float> labels_;
  const LossStatistics statistics_;           // per row that ranks exchange
  std::unique_ptr<DeviceExchange> exchange_;  // with the ranks that share the vocabulary, or nullptr
  Faults::Word fault_;
  std::vector<Pair> pairs_;
};

}  // namespace

Result<std::unique_ptr<Kernel>> MakeLinearCrossEntropy(const KernelSpec& spec, const Context& context) {
  if (!IsCompute(spec.inputs[0]))
    return Unsupported(std::string(ToString(spec.op)) + " of " + spec.inputs[0].ToString());
  return DispatchFloat(spec.inputs[0].dtype, [&]<class T>() { return LossKernel<T>::Make(spec, context); });
}

Result<std::unique_ptr<Kernel>> MakeTokenLogprob(const KernelSpec& spec, const Context& context) {
  return MakeLinearCrossEntropy(spec, context);
}

}  // namespace temper::gpu
