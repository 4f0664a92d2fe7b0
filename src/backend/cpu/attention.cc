// Attention over packed rows. Work is divided into units: (a run of whole documents, a head of keys), and forward also
// (a segment of its queries). A unit's keys and values are packed once into panels, which all query heads of the group
// use; scores exist only as a tile. Units do not touch each other's results, so any thread may take any unit.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention_units.h"

namespace temper {
namespace {

// Documents [begin, end) of tokens: one, or several short ones that share a tile's work.
struct Unit {
  int32_t begin, end;
};

// The units of a micro-batch, longest first; their number, or an error where document_start is not what it must be.
Result<int64_t> MakeUnits(const int32_t* document_start, int64_t tokens, int64_t longest, Unit* units) {
  int64_t n = 0;
  for (int64_t begin = 0; begin < tokens;) {
    int64_t end = begin + 1;
    while (end < tokens && document_start[end] == begin) ++end;
    if (document_start[begin] != begin || end - begin > longest) {
      return Corrupt(
          fmt::format("[attention] token {} says that its document starts at {}; documents are runs of at "
                      "most {} tokens that all name their first",
                      begin, document_start[begin], longest));
    }
    if (n > 0 && end - units[n - 1].begin <= kAttentionBlock) {
      units[n - 1].end = static_cast<int32_t>(end);
    } else {
      units[n++] = {static_cast<int32_t>(begin), static_cast<int32_t>(end)};
    }
    begin = end;
  }
  std::sort(units, units + n, [](const Unit& a, const Unit& b) {
    const int32_t la = a.end - a.begin, lb = b.end - b.begin;
    return la != lb ? la > lb : a.begin < b.begin;
  });
  return n;
}

class AttentionKernel final : public Kernel {
 public:
  AttentionKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[0], isa),
        tokens_(spec.inputs[0].shape[0]),
        threads_(spec.threads),
        scratch_(AttentionScratchOf(AttentionDimsOf(spec.inputs[0], spec.attributes), false, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const auto* document_start = reinterpret_cast<const int32_t*>(args.inputs[3]);
    Unit* units = reinterpret_cast<Unit*>(args.workspace + scratch_.units.v);
    TEMPER_ASSIGN_OR_RETURN(const int64_t n, MakeUnits(document_start, tokens_, scratch_.longest, units));
    // Items: the segments of each unit, of each head of keys.
    int64_t segments = 0;
    for (int64_t u = 0; u < n; ++u) segments += SegmentsOf(units[u]);
    ForEachUnit(threads_, segments * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      int64_t segment = item / heads_.kv_heads, u = 0;
      for (; segment >= SegmentsOf(units[u]); ++u) segment -= SegmentsOf(units[u]);
      const int64_t begin = units[u].begin + segment * kSegment;
      RunSegment(args, document_start, begin, std::min<int64_t>(units[u].end, begin + kSegment), item % heads_.kv_heads,
                 args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  static int64_t SegmentsOf(const Unit& unit) { return (unit.end - unit.begin + kSegment - 1) / kSegment; }

  void RunSegment(const KernelArgs& args, const int32_t* document_start, int64_t begin, int64_t end, int64_t kv,
                  std::byte* scratch) {
    const HeadLayout& h = heads_;
    const auto first_of = [&](int64_t t) {
      return h.window > 0 ? std::max<int64_t>(document_start[t], t - h.window + 1) : document_start[t];
    };
    const int64_t origin = first_of(begin), keys = end - origin, at = origin * h.key_stride() + kv * h.E;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.inputs[1], at), h.key_stride(), keys, k_panels);
    h.PackDepth(h.At(args.inputs[2], at), h.key_stride(), keys, v_panels);
    int32_t first[kSegment], last[kSegment];
    for (int64_t t = begin; t < end; ++t) {
      first[t - begin] = static_cast<int32_t>(first_of(t) - origin);
      last[t - begin] = static_cast<int32_t>(t - origin);
    }
    AttentionForwardTile tile = {.q_stride = h.query_stride(),
                                 .k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .scale = h.scale,
                                 .scratch = scratch + scratch_.tile.v,
                                 .lse_stride = h.heads};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      for (int64_t t = begin; t < end; t += h.kernels->rows) {
        tile.rows = static_cast<int>(std::min<int64_t>(h.kernels->rows, end - t));
        tile.first = first + (t - begin);
        tile.last = last + (t - begin);
        tile.q = h.At(args.inputs[0], t * h.query_stride() + head * h.E);
        tile.o = h.At(args.outputs[0], t * h.query_stride() + head * h.E);
        tile.lse = reinterpret_cast<float*>(args.outputs[1]) + t * h.heads + head;
        h.kernels->forward(tile);
      }
    }
  }

  const HeadLayout heads_;
  const int64_t tokens_;
  const int threads_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

class AttentionBackwardKernel final : public Kernel {
 public:
  AttentionBackwardKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[1], isa),
        tokens_(spec.inputs[1].shape[0]),
        threads_(spec.threads),
        scratch_(AttentionScratchOf(AttentionDimsOf(spec.inputs[1], spec.attributes), true, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const auto* document_start = reinterpret_cast<const int32_t*>(args.inputs[6]);
    Unit* units = reinterpret_cast<Unit*>(args.workspace + scratch_.units.v);
    TEMPER_ASSIGN_OR_RETURN(const int64_t n, MakeUnits(document_start, tokens_, scratch_.longest, units));
    ForEachUnit(threads_, n * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      RunUnit(args, document_start, units[item / heads_.kv_heads], item % heads_.kv_heads,
              args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  void RunUnit(const KernelArgs& args, const int32_t* document_start, const Unit& unit, int64_t kv,
               std::byte* scratch) {
    const HeadLayout& h = heads_;
    const int64_t L = unit.end - unit.begin, at = unit.begin * h.key_stride() + kv * h.E;
    const int64_t sum_bytes = (L + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock * h.padded_E() * 4;
    float* d_k = reinterpret_cast<float*>(scratch + scratch_.d_k.v);
    float* d_v = reinterpret_cast<float*>(scratch + scratch_.d_v.v);
    float* d_q = reinterpret_cast<float*>(scratch + scratch_.d_q.v);
    std::memset(d_k, 0, static_cast<size_t>(sum_bytes));
    std::memset(d_v, 0, static_cast<size_t>(sum_bytes));
    h.PackTokens(h.At(args.inputs[2], at), h.key_stride(), L, scratch + scratch_.k_panels.v);
    h.PackTokens(h.At(args.inputs[3], at), h.key_stride(), L, scratch + scratch_.v_panels.v);
    h.PackDepth(h.At(args.inputs[2], at), h.key_stride(), L, scratch + scratch_.k_depth_panels.v);

    int32_t first[kAttentionBlock], last[kAttentionBlock];
    float lse[kAttentionBlock], delta[kAttentionBlock];
    AttentionBackwardBlock block = {.first = first,
                                    .last = last,
                                    .q_rows = scratch + scratch_.q_rows.v,
                                    .d_o_rows = scratch + scratch_.d_o_rows.v,
                                    .q_panels = scratch + scratch_.q_panels.v,
                                    .d_o_panels = scratch + scratch_.d_o_panels.v,
                                    .k_panels = scratch + scratch_.k_panels.v,
                                    .v_panels = scratch + scratch_.v_panels.v,
                                    .key_panel_bytes = h.PanelBytes(h.E),
                                    .k_depth_panels = scratch + scratch_.k_depth_panels.v,
                                    .k_depth_panel_bytes = h.PanelBytes(L),
                                    .lse = lse,
                                    .delta = delta,
                                    .E = h.E,
                                    .scale = h.scale,
                                    .scratch = scratch + scratch_.tile.v,
                                    .d_q = d_q};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      for (int64_t i = 0; i < L; i += kAttentionBlock) {
        const int64_t t = unit.begin + i, at_q = t * h.query_stride() + head * h.E;
        block.rows = std::min(kAttentionBlock, L - i);
        block.row_panel_bytes = h.PanelBytes(block.rows);
        const std::byte *d_o = h.At(args.inputs[0], at_q), *q = h.At(args.inputs[1], at_q);
        h.kernels->copy_rows(q, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.q_rows.v);
        h.kernels->copy_rows(d_o, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.d_o_rows.v);
        h.PackDepth(q, h.query_stride(), block.rows, scratch + scratch_.q_panels.v);
        h.PackDepth(d_o, h.query_stride(), block.rows, scratch + scratch_.d_o_panels.v);
        h.kernels->row_dots(d_o, h.At(args.inputs[4], at_q), h.query_stride(), block.rows, h.E, delta);
        for (int64_t r = 0; r < block.rows; ++r) {
          const int64_t start = document_start[t + r];
          first[r] = static_cast<int32_t>((h.window > 0 ? std::max(start, t + r - h.window + 1) : start) - unit.begin);
          last[r] = static_cast<int32_t>(i + r);
          lse[r] = reinterpret_cast<const float*>(args.inputs[5])[(t + r) * h.heads + head];
        }
        std::memset(d_q, 0, static_cast<size_t>(kAttentionBlock * h.padded_E() * 4));
        for (int64_t j = first[0] / kAttentionBlock * kAttentionBlock; j <= i; j += kAttentionBlock) {
          block.first_key = j;
          block.keys = std::min(kAttentionBlock, L - j);
          block.d_k = d_k + j * h.padded_E();
          block.d_v = d_v + j * h.padded_E();
          h.kernels->backward(block);
        }
        h.kernels->write_rows(d_q, h.scale, block.rows, h.E, h.At(args.outputs[0], at_q), h.query_stride());
      }
    }
    h.kernels->write_rows(d_k, h.scale, L, h.E, h.At(args.outputs[1], at), h.key_stride());
    h.kernels->write_rows(d_v, 1, L, h.E, h.At(args.outputs[2], at), h.key_stride());
  }

  const HeadLayout heads_;
  const int64_t tokens_;
  const int threads_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

// New tokens against a cache. A query's heads of one group are rows of one tile: they see the same keys, and decoding
// has no other rows.
class AttentionCachedKernel final : public Kernel {
 public:
  AttentionCachedKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[0], isa),
        tokens_(spec.inputs[0].shape[0]),
        cache_(spec.inputs[3].shape[0]),
        threads_(spec.threads),
        scratch_(AttentionScratchOf({.tokens = tokens_, .keys = cache_, .head_dim = heads_.E}, false, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const HeadLayout& h = heads_;
    const int64_t length = *reinterpret_cast<const int32_t*>(args.inputs[5]);
    if (length < 0 || length + tokens_ > cache_) {
      return InvalidArgument(
          fmt::format("{} new tokens do not fit behind {} in a cache of {}", tokens_, length, cache_));
    }
    const auto row = static_cast<size_t>(h.key_stride() * h.element);
    for (int i = 0; i < 2; ++i) {
      std::byte* cache = args.outputs[1 + i];
      if (cache != args.inputs[3 + i]) std::memcpy(cache, args.inputs[3 + i], static_cast<size_t>(cache_) * row);
      std::memcpy(cache + static_cast<size_t>(length) * row, args.inputs[1 + i], static_cast<size_t>(tokens_) * row);
    }
    const int64_t segments = (tokens_ + kSegment - 1) / kSegment;
    ForEachUnit(threads_, segments * h.kv_heads, next_, [&](int64_t item, int thread) {
      const int64_t begin = item / h.kv_heads * kSegment;
      RunSegment(args, length, begin, std::min(tokens_, begin + kSegment), item % h.kv_heads,
                 args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  void RunSegment(const KernelArgs& args, int64_t length, int64_t begin, int64_t end, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const auto first_of = [&](int64_t i) { return h.window > 0 ? std::max<int64_t>(0, length + i - h.window + 1) : 0; };
    const int64_t origin = first_of(begin), keys = length + end - origin, at = origin * h.key_stride() + kv * h.E;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.outputs[1], at), h.key_stride(), keys, k_panels);
    h.PackDepth(h.At(args.outputs[2], at), h.key_stride(), keys, v_panels);
    AttentionForwardTile tile = {.k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .scale = h.scale,
                                 .scratch = scratch + scratch_.tile.v};
    int32_t first[kSegment], last[kSegment];
    tile.first = first;
    tile.last = last;
    const auto run = [&](int64_t t, int64_t head, int64_t rows, int64_t stride) {
      tile.q_stride = stride;
      tile.rows = static_cast<int>(rows);
      tile.q = h.At(args.inputs[0], t * h.query_stride() + head * h.E);
      tile.o = h.At(args.outputs[0], t * h.query_stride() + head * h.E);
      h.kernels->forward(tile);
    };
    const int64_t most = h.kernels->rows, head_end = (kv + 1) * h.group;
    if (end - begin < h.group) {
      for (int64_t t = begin; t < end; ++t) {
        std::fill_n(first, most, static_cast<int32_t>(first_of(t) - origin));
        std::fill_n(last, most, static_cast<int32_t>(length + t - origin));
        for (int64_t head = kv * h.group; head < head_end; head += most) {
          run(t, head, std::min(most, head_end - head), h.E);
        }
      }
      return;
    }
    for (int64_t t = begin; t < end; t += most) {
      const int64_t rows = std::min(most, end - t);
      for (int64_t r = 0; r < rows; ++r) {
        first[r] = static_cast<int32_t>(first_of(t + r) - origin);
        last[r] = static_cast<int32_t>(length + t + r - origin);
      }
      for (int64_t head = kv * h.group; head < head_end; ++head) run(t, head, rows, h.query_stride());
    }
  }

  const HeadLayout heads_;
  const int64_t tokens_, cache_;
  const int threads_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[0]) || spec.attributes.Has("axes")) return nullptr;
  return std::make_unique<AttentionKernel>(spec, isa);
}

std::unique_ptr<Kernel> MakeAttentionBackward(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[1]) || spec.attributes.Has("axes")) return nullptr;
  return std::make_unique<AttentionBackwardKernel>(spec, isa);
}

std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[0])) return nullptr;
  return std::make_unique<AttentionCachedKernel>(spec, isa);
}

}  // namespace temper
