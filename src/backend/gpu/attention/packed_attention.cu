// Attention by a library that attends within packed documents (packed_attention.h), made of what we have: tokens whose
// documents are told by document_start_T. The host looks at the document starts that it has loaded itself: how many
// documents there are decides which plan runs, and whether one does. It waits for nothing; what it decides follows from
// the batch alone. Tables of documents are made on the device, from the same starts.
//
// A plan launches blocks for as many documents as it was made for, each as long as a row. So there are three, for up to
// 4, 16 and 64 documents of a piece (graph/ops/packed_attention_scratch.h), each made when a batch first needs it. With
// more and shorter ones our own kernels are used, whose tiles take several documents at once.
//
// Documents of one token, as padding is, are none of the library's: o is v there, and d_q and d_k are 0.
#include <array>
#include <optional>

#include "backend/gpu/attention/packed_attention.h"
#include "backend/gpu/attention/packed_attention_kernel.h"
#include "base/log.h"
#include "graph/named_ops.h"
#include "graph/ops/packed_attention_scratch.h"

namespace temper::gpu {
namespace {

constexpr std::array<int64_t, 3> kPlannedDocuments = {4, 16, kPackedMostDocuments};

struct Tables {
  int *lengths, *q_starts, *kv_starts, *lse_starts;
};

// A block per piece of `piece` tokens. A document of at least two tokens is counted at its last; threads have as many
// tokens each, in their order. REQUIRES: a piece has at most kPackedMostDocuments of them, the host has counted.
__global__ void NameDocuments(const int* document_start_T, int64_t tokens, int64_t piece, Heads heads, Tables first,
                              int64_t table_stride) {
  TEMPER_SHARED(int, counts, kBlockThreads);
  const int64_t begin = int64_t{blockIdx.x} * piece, end = begin + piece < tokens ? begin + piece : tokens;
  const int64_t at = int64_t{blockIdx.x} * table_stride;
  const int thread = static_cast<int>(threadIdx.x);
  const int64_t each = (piece + kBlockThreads - 1) / kBlockThreads;
  const int64_t mine = begin + thread * each < end ? begin + thread * each : end;
  const int64_t after = mine + each < end ? mine + each : end;
  const auto ends = [&](int64_t t) {  // a document of several tokens
    return document_start_T[t] < t && (t + 1 == end || document_start_T[t + 1] == t + 1);
  };
  int count = 0;
  for (int64_t t = mine; t < after; ++t) count += ends(t) ? 1 : 0;
  counts[thread] = count;
  __syncthreads();
  int64_t next = 0, all = 0;
  for (int i = 0; i < kBlockThreads; ++i) {
    if (i < thread) next += counts[i];
    all += counts[i];
  }
  const auto name = [&](int64_t i, int64_t start, int64_t length) {
    if (i < kPackedMostDocuments) first.lengths[at + i] = static_cast<int>(length);
    first.q_starts[at + i] = static_cast<int>(start * heads.heads * heads.E);
    first.kv_starts[at + i] = static_cast<int>(start * heads.kv_heads * heads.E);
    first.lse_starts[at + i] = static_cast<int>(start * heads.heads);
  };
  for (int64_t t = mine; t < after; ++t) {
    if (!ends(t)) continue;
    if (next < kPackedMostDocuments) name(next, document_start_T[t] - begin, t + 1 - document_start_T[t]);
    ++next;
  }
  for (int64_t i = all + thread; i <= kPackedMostDocuments; i += kBlockThreads) name(i, end - begin, 0);
}

constexpr int kLanes = 16;  // of a row of a head, 8 elements each: heads have at most 128

__device__ bool IsAlone(const int* document_start_T, int64_t t, int64_t tokens) {
  return document_start_T[t] == t && (t + 1 == tokens || document_start_T[t + 1] == t + 1);
}

// o = v and lse = scale q k of tokens that see only themselves; kLanes threads per token and head.
__global__ void AttendAlone(const bf16* q, const bf16* k, const bf16* v, const int* document_start_T, Heads heads,
                            bf16* o, float* lse_TH) {
  const int64_t row = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) / kLanes;
  const int64_t t = row / heads.heads, e = threadIdx.x % kLanes * 8;
  float sum = 0;
  const bool alone = t < heads.tokens && IsAlone(document_start_T, t, heads.tokens);
  if (alone && e < heads.E) {
    const int64_t kv_row = t * heads.kv_heads + heads.KvHead(row % heads.heads);
    float a[8], b[8], value[8];
    Load(q + row * heads.E + e, a);
    Load(k + kv_row * heads.E + e, b);
    Load(v + kv_row * heads.E + e, value);
    for (int i = 0; i < 8; ++i) sum = Fma(a[i], b[i], sum);
    Store(o + row * heads.E + e, value);
  }
  for (int mask = kLanes / 2; mask > 0; mask /= 2) sum += ShuffleXor(sum, mask);
  if (alone && e == 0) lse_TH[row] = heads.scale * sum;
}

// d_v = the sum of d_o over the heads that share it, d_q = d_k = 0; kLanes threads per token and KV head.
__global__ void AttendAloneBackward(const bf16* d_o, const int* document_start_T, Heads heads, bf16* d_q, bf16* d_k,
                                    bf16* d_v) {
  const int64_t row = (int64_t{blockIdx.x} * kBlockThreads + threadIdx.x) / kLanes;
  const int64_t t = row / heads.kv_heads, e = threadIdx.x % kLanes * 8, group = heads.heads / heads.kv_heads;
  if (t >= heads.tokens || e >= heads.E || !IsAlone(document_start_T, t, heads.tokens)) return;
  const float none[8] = {};
  float sum[8] = {};
  for (int64_t h = row * group; h < (row + 1) * group; ++h) {  // heads of queries, of all tokens
    float x[8];
    Load(d_o + h * heads.E + e, x);
    for (int i = 0; i < 8; ++i) sum[i] += x[i];
    Store(d_q + h * heads.E + e, none);
  }
  Store(d_k + row * heads.E + e, none);
  Store(d_v + row * heads.E + e, sum);
}

// What the host sees in a batch.
struct Documents {
  int64_t most = 0;  // of several tokens, in a piece
  bool alone = false;
};

class PackedKernel final : public Kernel {
 public:
  PackedKernel(const KernelSpec& spec, const Context& context, const PackedScratch& scratch,
               std::unique_ptr<Kernel> own)
      : backward_(spec.op == Op::kAttentionBackward),
        heads_(HeadsOf(spec.inputs[backward_ ? 1 : 0], spec.attributes)),
        row_(std::min(heads_.tokens, spec.attributes.IntOr("row", heads_.tokens))),
        scratch_(scratch),
        library_(*context.packed),
        stream_(context.stream),
        own_(std::move(own)) {
    TEMPER_CHECK(scratch.bytes <= spec.workspace) << scratch.bytes.v << " of " << spec.workspace.v;
  }

  bool replayable() const override { return false; }  // what is enqueued depends on the documents of this run
  Status Run(const KernelArgs& args) override {
    const size_t starts = backward_ ? 6 : 3;
    const std::byte* const loaded = args.loaded == nullptr ? nullptr : args.loaded[starts];
    const std::optional<Documents> documents =
        loaded == nullptr ? std::nullopt : Look(reinterpret_cast<const int*>(loaded));
    PackedPass* const pass = documents ? PassFor(documents->most) : nullptr;
    if (pass == nullptr) return own_->Run(args);
    const int* const document_start_T = In<const int>(args, static_cast<int>(starts));
    const int64_t stride = scratch_.table.v / int64_t{sizeof(int)};
    const auto table = [&](int i) { return reinterpret_cast<int*>(args.workspace + scratch_.tables.v) + i * stride; };
    const Tables tables = {table(0), table(1), table(2), table(3)};
    TEMPER_RETURN_IF_ERROR(TEMPER_LAUNCH(NameDocuments, static_cast<unsigned>(scratch_.pieces), unsigned{kBlockThreads},
                                         stream_, document_start_T, heads_.tokens, scratch_.piece_tokens, heads_,
                                         tables, stride * 4));
    for (int64_t piece = 0; piece < scratch_.pieces; ++piece) {
      TEMPER_RETURN_IF_ERROR(pass->Run(OperandsOf(args, tables, piece)));
    }
    return documents->alone ? RunAlone(args, document_start_T) : OkStatus();
  }

 private:
  // Nothing: too many documents for a library, or starts that are wrong, which our own kernels report.
  std::optional<Documents> Look(const int* document_start_T) const {
    Documents found;
    for (int64_t begin = 0; begin < heads_.tokens; begin += scratch_.piece_tokens) {
      const int64_t end = std::min(begin + scratch_.piece_tokens, heads_.tokens);
      int64_t count = 0;
      for (int64_t t = begin; t < end; ++t) {
        const int64_t start = document_start_T[t], before = t % row_ == 0 ? t : document_start_T[t - 1];
        if (start != t && (t % row_ == 0 || start != before)) return std::nullopt;
        const bool last = t + 1 == end || document_start_T[t + 1] == t + 1;
        if (last && start < t) ++count;
        if (last && start == t) found.alone = true;
      }
      found.most = std::max(found.most, count);
    }
    return found.most > kPackedMostDocuments ? std::nullopt : std::optional(found);
  }

  // nullptr: the library has none, which is told once and remembered.
  PackedPass* PassFor(int64_t documents) {
    if (documents == 0) return nullptr;
    size_t i = 0;
    while (kPlannedDocuments[i] < documents) ++i;
    Planned& planned = planned_[i];
    if (!planned.asked) {
      planned.asked = true;
      auto made = library_.Make({.documents = kPlannedDocuments[i],
                                 .longest = row_,
                                 .heads = heads_.heads,
                                 .kv_heads = heads_.kv_heads,
                                 .head_dim = heads_.E,
                                 .scale = heads_.scale,
                                 .backward = backward_});
      if (made.ok()) {
        planned.pass = std::move(*made);
      } else {
        LogWarning("attention is computed by our own kernels, which are slower on this GPU: " +
                   made.status().message());
      }
    }
    return planned.pass.get();
  }

  PackedOperands OperandsOf(const KernelArgs& args, const Tables& tables, int64_t piece) const {
    const int64_t t = piece * scratch_.piece_tokens, table = piece * scratch_.table.v * 4;
    const int64_t q = t * heads_.heads * heads_.E * int64_t{sizeof(bf16)},
                  kv = t * heads_.kv_heads * heads_.E * int64_t{sizeof(bf16)},
                  lse = t * heads_.heads * int64_t{sizeof(float)};
    const auto of_piece = [&](int* of_first) { return reinterpret_cast<std::byte*>(of_first) + table; };
    PackedOperands x = {.lengths = of_piece(tables.lengths),
                        .q_starts = of_piece(tables.q_starts),
                        .kv_starts = of_piece(tables.kv_starts),
                        .lse_starts = of_piece(tables.lse_starts),
                        .workspace = args.workspace + scratch_.workspace.v};
    const int first = backward_ ? 1 : 0;
    x.q = args.inputs[first] + q;
    x.k = args.inputs[first + 1] + kv;
    x.v = args.inputs[first + 2] + kv;
    x.o = (backward_ ? args.inputs[4] : args.outputs[0]) + q;
    x.lse_TH = (backward_ ? args.inputs[5] : args.outputs[1]) + lse;
    if (!backward_) return x;
    x.d_o = args.inputs[0] + q;
    x.d_q = args.outputs[0] + q;
    x.d_k = args.outputs[1] + kv;
    x.d_v = args.outputs[2] + kv;
    x.delta_TH = args.workspace + scratch_.delta.v;
    x.d_k_by_head = args.workspace + scratch_.d_k_by_head.v;
    x.d_v_by_head = args.workspace + scratch_.d_v_by_head.v;
    return x;
  }

  Status RunAlone(const KernelArgs& args, const int* document_start_T) const {
    const int64_t rows = heads_.tokens * (backward_ ? heads_.kv_heads : heads_.heads);
    const unsigned blocks = BlocksFor(rows * kLanes);
    constexpr unsigned kThreads = kBlockThreads;
    if (backward_) {
      return TEMPER_LAUNCH(AttendAloneBackward, blocks, kThreads, stream_, In<const bf16>(args, 0), document_start_T,
                           heads_, Out<bf16>(args, 0), Out<bf16>(args, 1), Out<bf16>(args, 2));
    }
    return TEMPER_LAUNCH(AttendAlone, blocks, kThreads, stream_, In<const bf16>(args, 0), In<const bf16>(args, 1),
                         In<const bf16>(args, 2), document_start_T, heads_, Out<bf16>(args, 0), Out<float>(args, 1));
  }

  struct Planned {
    bool asked = false;
    std::unique_ptr<PackedPass> pass;
  };

  const bool backward_;
  const Heads heads_;
  const int64_t row_;
  const PackedScratch scratch_;
  PackedAttention& library_;
  const gpuStream_t stream_;
  const std::unique_ptr<Kernel> own_;
  std::array<Planned, kPlannedDocuments.size()> planned_;
};

}  // namespace

std::unique_ptr<Kernel> WithPackedAttention(const KernelSpec& spec, const Context& context,
                                            std::unique_ptr<Kernel> own) {
  if (own == nullptr || context.packed == nullptr) return own;
  const bool backward = spec.op == Op::kAttentionBackward;
  const PackedScratch scratch = PackedScratchOf(spec.inputs[backward ? 1 : 0], spec.attributes, backward);
  if (scratch.pieces == 0) return own;
  return std::make_unique<PackedKernel>(spec, context, scratch, std::move(own));
}

}  // namespace temper::gpu
