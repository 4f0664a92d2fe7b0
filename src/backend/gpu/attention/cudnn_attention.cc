#include "backend/gpu/attention/cudnn_attention.h"

#include <fmt/core.h>

#include <array>
#include <limits>

#include "backend/gpu/attention/cudnn_graph.h"
#include "graph/ops/packed_attention_scratch.h"

namespace temper::gpu {
namespace {

// Names of what lies in memory, and of numbers.
enum Id : int64_t {
  kQ = 1,
  kK,
  kV,
  kO,
  kLse,
  kDO,
  kDQ,
  kDK,
  kDV,
  kLengths,
  kQStarts,
  kKvStarts,
  kLseStarts,
  kDelta,
  kDKByHead,
  kDVByHead,
  kScale,
  kOne,
  kHidden,  // the score of a key that is not seen
};

using Dims = CudnnGraph::Dims;
using Tensor = CudnnGraph::Tensor;

// What both passes begin with. B: documents, S: tokens of the longest, H and K heads, E elements of one.
class Packed {
 public:
  Packed(CudnnGraph& g, const PackedShape& s) : g(g), B(s.documents), S(s.longest), H(s.heads), K(s.kv_heads) {
    E = s.head_dim;
    lengths = g.InMemory(kLengths, CudnnType::kI32, {B, 1, 1, 1}, {1, 1, 1, 1});
    q_starts = Starts(kQStarts);
    kv_starts = Starts(kKvStarts);
    lse_starts = Starts(kLseStarts);
    scale = g.Number(kScale);
    hidden = g.Number(kHidden);
  }

  Tensor OfQueries(int64_t id) { return OfTokens(id, H, q_starts); }
  Tensor OfKeys(int64_t id) { return OfTokens(id, K, kv_starts); }
  // [B, K, E, S]: the same memory, seen with columns for rows.
  Tensor OfKeysTransposed(int64_t id) {
    return g.InMemory(id, CudnnType::kBf16, {B, K, E, S}, {S * K * E, E, 1, K * E}, &kv_starts);
  }
  // A number per query and head, f32.
  Tensor PerRow(int64_t id) { return g.InMemory(id, CudnnType::kF32, {B, H, S, 1}, {S * H, 1, H, 1}, &lse_starts); }
  Tensor Scores(CudnnType type = CudnnType::kF32, bool transposed = false) {
    return g.Virtual(type, {B, H, S, S}, transposed);
  }
  Tensor Row() { return g.Virtual(CudnnType::kF32, {B, H, S, 1}); }

  // Hidden where a query or a key lies behind its document's end, and where a key lies behind its query.
  Tensor Masked(const Tensor& scores) {
    const Tensor q = Scores(CudnnType::kI32), k = Scores(CudnnType::kI32), is_q = Scores(CudnnType::kBoolean),
                 is_k = Scores(CudnnType::kBoolean), both = Scores(CudnnType::kBoolean), within = Scores();
    g.Pointwise(CudnnPointwise::kIndex, scores, nullptr, q, nullptr, 2);
    g.Pointwise(CudnnPointwise::kIndex, scores, nullptr, k, nullptr, 3);
    g.Pointwise(CudnnPointwise::kLess, q, &lengths, is_q);
    g.Pointwise(CudnnPointwise::kLess, k, &lengths, is_k);
    g.Pointwise(CudnnPointwise::kAnd, is_q, &is_k, both);
    g.Pointwise(CudnnPointwise::kSelect, scores, &hidden, within, &both);
    const Tensor row = Scores(CudnnType::kI32), column = Scores(CudnnType::kI32), sees = Scores(CudnnType::kBoolean),
                 seen = Scores();
    g.Pointwise(CudnnPointwise::kIndex, within, nullptr, row, nullptr, 2);
    g.Pointwise(CudnnPointwise::kIndex, within, nullptr, column, nullptr, 3);
    g.Pointwise(CudnnPointwise::kGreaterOrEqual, row, &column, sees);
    g.Pointwise(CudnnPointwise::kSelect, within, &hidden, seen, &sees);
    return seen;
  }

  CudnnGraph& g;
  const int64_t B, S, H, K;
  int64_t E;
  Tensor lengths, q_starts, kv_starts, lse_starts, scale, hidden;

 private:
  Tensor Starts(int64_t id) { return g.InMemory(id, CudnnType::kI32, {B + 1, 1, 1, 1}, {1, 1, 1, 1}); }
  Tensor OfTokens(int64_t id, int64_t heads, const Tensor& starts) {
    return g.InMemory(id, CudnnType::kBf16, {B, heads, S, E}, {S * heads * E, E, heads * E, 1}, &starts);
  }
};

void Forward(CudnnGraph& g, const PackedShape& shape) {
  Packed p(g, shape);
  const Tensor q = p.OfQueries(kQ), k = p.OfKeysTransposed(kK), v = p.OfKeys(kV), o = p.OfQueries(kO),
               lse = p.PerRow(kLse);
  const Tensor products = p.Scores(), scaled = p.Scores();
  g.Multiply(q, k, products, {.rows = &p.lengths, .columns = &p.lengths});
  g.Pointwise(CudnnPointwise::kMul, products, &p.scale, scaled);
  const Tensor seen = p.Masked(scaled);
  const Tensor largest = p.Row(), less = p.Scores(), exponentials = p.Scores(), sum = p.Row(), log = p.Row(),
               weights = p.Scores(CudnnType::kBf16);
  g.Reduce(CudnnReduction::kMax, seen, largest);
  g.Pointwise(CudnnPointwise::kSub, seen, &largest, less);
  g.Pointwise(CudnnPointwise::kExp, less, nullptr, exponentials);
  g.Reduce(CudnnReduction::kSum, exponentials, sum);
  g.Pointwise(CudnnPointwise::kLog, sum, nullptr, log);
  g.Pointwise(CudnnPointwise::kAdd, largest, &log, lse);
  g.Pointwise(CudnnPointwise::kDiv, exponentials, &sum, weights);
  g.Multiply(weights, v, o, {.rows = &p.lengths, .terms = &p.lengths});
}

void Backward(CudnnGraph& g, const PackedShape& shape) {
  Packed p(g, shape);
  const int64_t B = p.B, S = p.S, H = p.H, K = p.K, E = p.E;
  const Tensor q = p.OfQueries(kQ), k = p.OfKeysTransposed(kK), v = p.OfKeysTransposed(kV), o = p.OfQueries(kO),
               d_o = p.OfQueries(kDO), lse = p.PerRow(kLse), delta = p.PerRow(kDelta), one = g.Number(kOne);
  const Tensor d_q = p.OfQueries(kDQ), d_k = p.OfKeys(kDK), d_v = p.OfKeys(kDV);
  // delta = sum of d_o o. The strides are those with which the library knows its pattern again.
  const Tensor weighted = g.Virtual(CudnnType::kF32, {B, H, S, E}), summed = p.Row();
  g.Pointwise(CudnnPointwise::kMul, d_o, &o, weighted);
  g.Reduce(CudnnReduction::kSum, weighted, summed);
  g.Pointwise(CudnnPointwise::kMul, summed, &one, delta);
  // p = exp(scale q k - lse)
  const Tensor products = p.Scores(), scaled = p.Scores(), less = p.Scores(), weights = p.Scores();
  g.Multiply(q, k, products, {.rows = &p.lengths, .columns = &p.lengths});
  g.Pointwise(CudnnPointwise::kMul, products, &p.scale, scaled);
  g.Pointwise(CudnnPointwise::kSub, scaled, &lse, less);
  const Tensor seen = p.Masked(less);
  g.Pointwise(CudnnPointwise::kExp, seen, nullptr, weights);
  // A product of one head of queries is added to those that share its keys by a sum of its own. The places of the
  // parts follow from those of the sum, H/K times as far apart.
  const auto to_keys = [&](const Tensor& a, const Tensor& b, const Tensor& y, int64_t by_head_id) {
    const Tensor by_head =
        H == K ? y : g.InMemory(by_head_id, CudnnType::kBf16, {B, H, S, E}, {S * H * E, E, H * E, 1}, &p.kv_starts);
    g.Multiply(a, b, by_head, {.rows = &p.lengths, .terms = &p.lengths});
    if (H != K) g.Reduce(CudnnReduction::kSum, by_head, y);
  };
  const Tensor weights_t = p.Scores(CudnnType::kBf16, true);
  g.Reshape(weights, weights_t);
  to_keys(weights_t, d_o, d_v, kDVByHead);
  // d_s = p (d_o v - delta) scale
  const Tensor d_p = p.Scores(), d_less = p.Scores(), d_weights = p.Scores(), d_s = p.Scores(),
               d_s_t = p.Scores(CudnnType::kBf16, true);
  g.Multiply(d_o, v, d_p, {.rows = &p.lengths, .columns = &p.lengths});
  g.Pointwise(CudnnPointwise::kSub, d_p, &delta, d_less);
  g.Pointwise(CudnnPointwise::kMul, d_less, &weights, d_weights);
  g.Pointwise(CudnnPointwise::kMul, d_weights, &p.scale, d_s);
  g.Reshape(d_s, d_s_t);
  to_keys(d_s_t, q, d_k, kDKByHead);
  const Tensor keys = g.Virtual(CudnnType::kF32, {B, K, S, E}, {S * K * E, E, K * E, 1}, &p.kv_starts);
  g.Reshape(k, keys);
  g.Multiply(d_s, keys, d_q, {.rows = &p.lengths, .terms = &p.lengths});
}

class CudnnPass final : public PackedPass {
 public:
  CudnnPass(const CudnnApi& api, const PackedShape& shape) : shape_(shape), graph_(api) {}

  Status Plan(const CudnnApi& api, CudnnHandle handle, const std::string& json) {
    handle_ = handle;
    if (shape_.backward) {
      Backward(graph_, shape_);
    } else {
      Forward(graph_, shape_);
    }
    const CudnnDescriptor device = graph_.Device(handle, json);
    if (!shape_.backward) {
      graph_.PlanByHeuristics(device);
    } else {
      // The heuristics do not ask whether the same bits are wanted again. NVIDIA's frontend takes this engine for that,
      // with 2 for its stages; 9.23 gave the other knobs their names.
      constexpr CudnnGraph::KnobChoice kBefore[] = {{CudnnKnob::kKernel, 31}, {CudnnKnob::kStages, 2}};
      constexpr CudnnGraph::KnobChoice kFrom923[] = {{CudnnKnob::kTileM, 3},    {CudnnKnob::kTileN, 2},
                                                     {CudnnKnob::kKernel, 2},   {CudnnKnob::kStreamK, 0},
                                                     {CudnnKnob::kTileCgaM, 0}, {CudnnKnob::kStages, 2}};
      constexpr int64_t kDeterministic = 5;
      using Knobs = std::span<const CudnnGraph::KnobChoice>;
      graph_.PlanByEngine(device, kDeterministic, api.number < 92300 ? Knobs(kBefore) : Knobs(kFrom923));
    }
    TEMPER_RETURN_IF_ERROR(graph_.status());
    if (graph_.workspace() > kPackedWorkspace) {
      return Unsupported(fmt::format("{} wants {} of scratch for attention, more than the {} that are planned",
                                     api.version, ToString(graph_.workspace()), ToString(kPackedWorkspace)));
    }
    return OkStatus();
  }

  Status Run(const PackedOperands& x) override {
    float scale = shape_.scale, one = 1, hidden = -std::numeric_limits<float>::infinity();
    if (!shape_.backward) {
      const std::array<int64_t, 11> ids = {kQ,       kK,        kV,         kO,     kLse,   kLengths,
                                           kQStarts, kKvStarts, kLseStarts, kScale, kHidden};
      const std::array<void*, 11> addresses = {x.q,        x.k,         x.v,          x.o,    x.lse_TH, x.lengths,
                                               x.q_starts, x.kv_starts, x.lse_starts, &scale, &hidden};
      return graph_.Run(handle_, ids, addresses, x.workspace);
    }
    const std::array<int64_t, 19> ids = {kQ,     kK,      kV,     kO,        kLse,     kDO,       kDQ,
                                         kDK,    kDV,     kDelta, kLengths,  kQStarts, kKvStarts, kLseStarts,
                                         kScale, kHidden, kOne,   kDKByHead, kDVByHead};
    const std::array<void*, 19> addresses = {x.q,       x.k,        x.v,           x.o,          x.lse_TH,
                                             x.d_o,     x.d_q,      x.d_k,         x.d_v,        x.delta_TH,
                                             x.lengths, x.q_starts, x.kv_starts,   x.lse_starts, &scale,
                                             &hidden,   &one,       x.d_k_by_head, x.d_v_by_head};
    const size_t count = shape_.heads == shape_.kv_heads ? ids.size() - 2 : ids.size();
    return graph_.Run(handle_, std::span(ids).first(count), std::span(addresses).first(count), x.workspace);
  }

 private:
  const PackedShape shape_;
  CudnnGraph graph_;
  CudnnHandle handle_ = nullptr;
};

class CudnnAttention final : public PackedAttention {
 public:
  CudnnAttention(const CudnnApi& api, CudnnHandle handle, const std::string& json)
      : api_(api), handle_(handle), json_(json) {}
  ~CudnnAttention() override {
    if (handle_ != nullptr) (void)api_.destroy(handle_);
  }
  Result<std::unique_ptr<PackedPass>> Make(const PackedShape& shape) override {
    auto pass = std::make_unique<CudnnPass>(api_, shape);
    TEMPER_RETURN_IF_ERROR(pass->Plan(api_, handle_, json_));
    return std::unique_ptr<PackedPass>(std::move(pass));
  }

 private:
  const CudnnApi& api_;
  const CudnnHandle handle_;
  const std::string json_;
};

}  // namespace

Result<std::string> CudnnVersion(const std::string& library) {
  TEMPER_ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn(library));
  return api->version;
}

bool PrefersCudnn(int major) {
  return major == 10;
}

Result<std::unique_ptr<PackedAttention>> MakeCudnnAttention(void* stream, const std::string& library) {
  TEMPER_ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn(library));
  CudnnHandle handle = nullptr;
  TEMPER_RETURN_IF_ERROR(api->StatusOf(api->create(&handle), "its start"));
  auto attention = std::make_unique<CudnnAttention>(*api, handle, "");
  TEMPER_RETURN_IF_ERROR(api->StatusOf(api->set_stream(handle, stream), "its stream"));
  return std::unique_ptr<PackedAttention>(std::move(attention));
}

Result<std::unique_ptr<PackedAttention>> MakeCudnnPlanner(const std::string& device_json, const std::string& library) {
  TEMPER_ASSIGN_OR_RETURN(const CudnnApi* const api, LoadCudnn(library));
  return std::unique_ptr<PackedAttention>(std::make_unique<CudnnAttention>(*api, nullptr, device_json));
}

}  // namespace temper::gpu
