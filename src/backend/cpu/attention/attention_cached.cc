// Attention of new tokens against a cache of earlier keys and values (decoding).
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention/attention_units.h"
#include "graph/ops/attention_heads.h"

namespace temper {
namespace {

// A query's heads of one group are rows of one tile: they see the same keys, and decoding has no other rows. Matrix
// units would compute 32 of them, and what decoding waits for is the cache: tiles are those of vectors.
class AttentionCachedKernel final : public Kernel {
 public:
  AttentionCachedKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[0], spec.inputs[2], AttentionKernelsOf(spec.inputs[0].dtype, VectorIsa(isa))),
        tokens_(spec.inputs[0].shape[0]),
        cache_(spec.inputs[3].shape[0]),
        threads_(spec.threads),
        sink_(AttentionOptionsOf(spec.attributes, 6).sink),
        sink_dtype_(sink_ < 0 ? ElementFormat(DType::kF32) : spec.inputs[static_cast<size_t>(sink_)].dtype),
        scratch_(AttentionScratchOf({tokens_, cache_, heads_.E, heads_.W}, false, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const HeadLayout& h = heads_;
    const int64_t length = *reinterpret_cast<const int32_t*>(args.inputs[5]);
    if (length < 0 || length + tokens_ > cache_) {
      return InvalidArgument(
          fmt::format("{} new tokens do not fit after {} in a cache of {}", tokens_, length, cache_));
    }
    for (int i = 0; i < 2; ++i) {
      const auto row = static_cast<size_t>((i == 0 ? h.key_stride() : h.value_stride()) * h.element);
      std::byte* cache = args.outputs[1 + i];
      if (cache != args.inputs[3 + i]) std::memcpy(cache, args.inputs[3 + i], static_cast<size_t>(cache_) * row);
      std::memcpy(cache + static_cast<size_t>(length) * row, args.inputs[1 + i], static_cast<size_t>(tokens_) * row);
    }
    const int64_t segments = (tokens_ + kSegment - 1) / kSegment;
    ForEachUnit(*h.tiles, threads_, segments * h.kv_heads, next_, [&](int64_t item, int thread) {
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
    const int64_t origin = first_of(begin), keys = length + end - origin;
    const int64_t at_k = origin * h.key_stride() + kv * h.E, at_v = origin * h.value_stride() + kv * h.W;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.outputs[1], at_k), h.key_stride(), keys, h.E, k_panels);
    h.PackDepth(h.At(args.outputs[2], at_v), h.value_stride(), keys, h.W, v_panels);
    float sinks[kAttentionBlock];
    AttentionForwardTile tile = {.k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .W = h.W,
                                 .scale = h.scale,
                                 .cap = h.cap,
                                 .sinks = sink_ < 0 ? nullptr : sinks,
                                 .scratch = scratch + scratch_.tile.v};
    int32_t first[kSegment], last[kSegment];
    tile.first = first;
    tile.last = last;
    // The rows are heads from `head` on, or tokens from t on.
    const auto run = [&](int64_t t, int64_t head, int64_t rows, bool of_heads) {
      tile.q_stride = of_heads ? h.E : h.query_stride();
      tile.o_stride = of_heads ? h.W : h.out_stride();
      for (int64_t r = 0; sink_ >= 0 && r < rows; ++r) {
        sinks[r] = SinkAt(args.inputs[sink_], sink_dtype_, of_heads ? head + r : head);
      }
      tile.rows = static_cast<int>(rows);
      tile.q = h.At(args.inputs[0], t * h.query_stride() + head * h.E);
      tile.o = h.At(args.outputs[0], t * h.out_stride() + head * h.W);
      h.kernels->forward(tile);
    };
    const int64_t most = h.kernels->rows, head_end = (kv + 1) * h.group;
    if (end - begin < h.group) {
      for (int64_t t = begin; t < end; ++t) {
        std::fill_n(first, most, static_cast<int32_t>(first_of(t) - origin));
        std::fill_n(last, most, static_cast<int32_t>(length + t - origin));
        for (int64_t head = kv * h.group; head < head_end; head += most) {
          run(t, head, std::min(most, head_end - head), true);
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
      for (int64_t head = kv * h.group; head < head_end; ++head) run(t, head, rows, false);
    }
  }

  const HeadLayout heads_;
  const int64_t tokens_, cache_;
  const int threads_;
  const int sink_;
  const ElementFormat sink_dtype_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[0], spec.inputs[2])) return nullptr;
  return std::make_unique<AttentionCachedKernel>(spec, isa);
}

}  // namespace temper
