// Attention over packed rows, and the steps of a ring over dealt ones. Work is divided into units (attention_seen.h),
// of a head of keys each, forward also into segments of their queries. A unit's keys and values are packed once into
// panels, which all query heads of the group use; scores exist only as a tile. Units do not touch each other's results,
// so any thread may take any unit.
#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention/attention_seen.h"
#include "backend/cpu/attention/attention_units.h"

namespace temper {
namespace {

bool IsBackward(const KernelSpec& spec) {
  return spec.op == Op::kAttentionBackward || spec.op == Op::kAttentionStepBackward;
}
const TensorType& QueriesOf(const KernelSpec& spec) {
  return spec.inputs[IsBackward(spec) ? 1 : 0];
}

// What forward and backward have in common.
class AttentionKernel : public Kernel {
 protected:
  AttentionKernel(const KernelSpec& spec, const AttentionKernels& table)
      : tokens_(spec, QueriesOf(spec)),
        heads_(spec, QueriesOf(spec), table),
        scratch_(AttentionScratchOf(tokens_.dims(), IsBackward(spec), spec.threads)),
        threads_(spec.threads),
        acc_(tokens_.is_step() && spec.attributes.Flag("acc")) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  // Where this micro-batch's units and what queries see lie.
  AttentionUnit* Units(const KernelArgs& args) const {
    return reinterpret_cast<AttentionUnit*>(args.workspace + scratch_.units.v);
  }
  SeenKeys* Seen(const KernelArgs& args) const { return reinterpret_cast<SeenKeys*>(args.workspace + scratch_.seen.v); }
  std::byte* ThreadScratch(const KernelArgs& args, int thread) const {
    return args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread;
  }
  // Copies an input to the output that continues it, unless both have one address.
  static void GoOnFrom(const std::byte* input, std::byte* output, int64_t bytes) {
    if (output != input) std::memcpy(output, input, static_cast<size_t>(bytes));
  }
  static float* F32(std::byte* data) { return reinterpret_cast<float*>(data); }

  const AttentionTokens tokens_;
  const HeadLayout heads_;
  const AttentionScratch scratch_;
  const int threads_;
  const bool acc_;  // a step that continues from the results of those before
  std::atomic<int64_t> next_{0};
};

class AttentionForwardKernel final : public AttentionKernel {
 public:
  AttentionForwardKernel(const KernelSpec& spec, const AttentionKernels& table) : AttentionKernel(spec, table) {}

  Status Run(const KernelArgs& args) override {
    const AttentionUnit* units = Units(args);
    TEMPER_ASSIGN_OR_RETURN(const int64_t n,
                            tokens_.Prepare(reinterpret_cast<const int32_t*>(args.inputs[3]), Units(args), Seen(args)));
    if (acc_) {
      const int64_t rows = tokens_.dims().tokens;
      GoOnFrom(args.inputs[4], args.outputs[0], rows * heads_.query_stride() * SizeOf(DType::kF32));
      GoOnFrom(args.inputs[5], args.outputs[1], rows * heads_.heads * SizeOf(DType::kF32));
    }
    // Items: the segments of each unit, of each head of keys. Late queries see more keys: they come first.
    int64_t segments = 0;
    for (int64_t u = 0; u < n; ++u) segments += SegmentsOf(units[u]);
    ForEachUnit(*heads_.tiles, threads_, segments * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      int64_t segment = item / heads_.kv_heads, u = 0;
      for (; segment >= SegmentsOf(units[u]); ++u) segment -= SegmentsOf(units[u]);
      const int64_t begin = units[u].begin + (SegmentsOf(units[u]) - 1 - segment) * kSegment;
      RunSegment(args, begin, std::min<int64_t>(units[u].end, begin + kSegment), item % heads_.kv_heads,
                 ThreadScratch(args, thread));
    });
    return OkStatus();
  }

 private:
  static int64_t SegmentsOf(const AttentionUnit& unit) { return (unit.end - unit.begin + kSegment - 1) / kSegment; }

  // Queries [begin, end) of the heads that share key head `kv`.
  void RunSegment(const KernelArgs& args, int64_t begin, int64_t end, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const SeenKeys* seen = Seen(args);
    const int64_t origin = seen[begin].first, keys = seen[end - 1].last + 1 - origin;
    if (keys <= 0) return;
    const int64_t at = origin * h.key_stride() + kv * h.E;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.inputs[1], at), h.key_stride(), keys, k_panels);
    h.PackDepth(h.At(args.inputs[2], at), h.key_stride(), keys, v_panels);
    int32_t first[kSegment], last[kSegment];
    for (int64_t t = begin; t < end; ++t) {
      first[t - begin] = static_cast<int32_t>(seen[t].first - origin);
      last[t - begin] = static_cast<int32_t>(seen[t].last - origin);
    }
    AttentionForwardTile tile = {.q_stride = h.query_stride(),
                                 .k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .scale = h.scale,
                                 .cap = h.cap,
                                 .scratch = scratch + scratch_.tile.v,
                                 .resume = acc_,
                                 .lse_stride = h.heads};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      for (int64_t t = begin; t < end; t += h.kernels->rows) {
        const int64_t at_q = t * h.query_stride() + head * h.E;
        tile.rows = static_cast<int>(std::min<int64_t>(h.kernels->rows, end - t));
        tile.first = first + (t - begin);
        tile.last = last + (t - begin);
        tile.q = h.At(args.inputs[0], at_q);
        if (tokens_.is_step()) {
          tile.sums = F32(args.outputs[0]) + at_q;
        } else {
          tile.o = h.At(args.outputs[0], at_q);
        }
        tile.lse = F32(args.outputs[1]) + t * h.heads + head;
        h.kernels->forward(tile);
      }
    }
  }
};

class AttentionBackwardKernel final : public AttentionKernel {
 public:
  AttentionBackwardKernel(const KernelSpec& spec, const AttentionKernels& table) : AttentionKernel(spec, table) {}

  Status Run(const KernelArgs& args) override {
    const AttentionUnit* units = Units(args);
    TEMPER_ASSIGN_OR_RETURN(const int64_t n,
                            tokens_.Prepare(reinterpret_cast<const int32_t*>(args.inputs[6]), Units(args), Seen(args)));
    const int64_t d_q_bytes = tokens_.dims().tokens * heads_.query_stride() * SizeOf(DType::kF32);
    if (acc_) {
      GoOnFrom(args.inputs[7], args.outputs[0], d_q_bytes);
    } else if (tokens_.is_step()) {
      std::memset(args.outputs[0], 0, static_cast<size_t>(d_q_bytes));
    }
    ForEachUnit(*heads_.tiles, threads_, n * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      RunUnit(args, units[item / heads_.kv_heads], item % heads_.kv_heads, ThreadScratch(args, thread));
    });
    return OkStatus();
  }

 private:
  void RunUnit(const KernelArgs& args, const AttentionUnit& unit, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const SeenKeys* seen = Seen(args) + unit.begin;
    const int64_t length = unit.end - unit.begin, at = unit.begin * h.key_stride() + kv * h.E;
    const int64_t L = seen[length - 1].last + 1 - unit.begin;  // keys behind these are seen by none
    const int64_t sum_bytes = (length + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock * h.padded_E() * 4;
    float* d_k = F32(scratch + scratch_.d_k.v);
    float* d_v = F32(scratch + scratch_.d_v.v);
    float* d_q = F32(scratch + scratch_.d_q.v);
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
                                    .cap = h.cap,
                                    .scratch = scratch + scratch_.tile.v,
                                    .d_q = d_q};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      for (int64_t i = 0; i < length; i += kAttentionBlock) {
        const int64_t t = unit.begin + i, at_q = t * h.query_stride() + head * h.E;
        block.rows = std::min(kAttentionBlock, length - i);
        for (int64_t r = 0; r < block.rows; ++r) {
          first[r] = seen[i + r].first - unit.begin;
          last[r] = seen[i + r].last - unit.begin;
          lse[r] = reinterpret_cast<const float*>(args.inputs[5])[(t + r) * h.heads + head];
        }
        const int64_t end_key = last[block.rows - 1] + 1;
        if (end_key <= first[0]) continue;
        block.row_panel_bytes = h.PanelBytes(block.rows);
        const std::byte *d_o = h.At(args.inputs[0], at_q), *q = h.At(args.inputs[1], at_q);
        h.kernels->copy_rows(q, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.q_rows.v);
        h.kernels->copy_rows(d_o, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.d_o_rows.v);
        h.PackQueries(q, h.query_stride(), block.rows, scratch + scratch_.q_panels.v);
        h.PackQueries(d_o, h.query_stride(), block.rows, scratch + scratch_.d_o_panels.v);
        h.kernels->row_dots(d_o, h.At(args.inputs[4], at_q), h.query_stride(), block.rows, h.E, delta);
        std::memset(d_q, 0, static_cast<size_t>(kAttentionBlock * h.padded_E() * 4));
        for (int64_t j = first[0] / kAttentionBlock * kAttentionBlock; j < end_key; j += kAttentionBlock) {
          block.first_key = j;
          block.keys = std::min(kAttentionBlock, L - j);
          block.d_k = d_k + j * h.padded_E();
          block.d_v = d_v + j * h.padded_E();
          h.kernels->backward(block);
        }
        Write(d_q, h.scale, block.rows, args.outputs[0], at_q, h.query_stride(), /*add=*/true);
      }
    }
    if (h.kernels->turn_keys != nullptr) {
      for (int64_t j = 0; j < L; j += kAttentionBlock) {
        for (float* sums : {d_k, d_v}) h.kernels->turn_keys(sums + j * h.padded_E(), h.E, scratch + scratch_.tile.v);
      }
    }
    Write(d_k, h.scale, length, args.outputs[1], at, h.key_stride(), /*add=*/false);
    Write(d_v, 1, length, args.outputs[2], at, h.key_stride(), /*add=*/false);
  }

  // Rows of scale * sums: rounded, or of a step in f32, of which d_q adds up over the steps.
  void Write(const float* sums, float scale, int64_t rows, std::byte* output, int64_t at, int64_t stride, bool add) {
    const HeadLayout& h = heads_;
    if (tokens_.is_step()) {
      h.kernels->add_rows(sums, scale, rows, h.E, add, F32(output) + at, stride);
    } else {
      h.kernels->write_rows(sums, scale, rows, h.E, h.At(output, at), stride);
    }
  }
};

std::unique_ptr<Kernel> MakeServed(const KernelSpec& spec, Isa isa) {
  const TensorType& q = QueriesOf(spec);
  return Served(spec, q) ? MakeAttentionOf(spec, AttentionKernelsOf(q.dtype, isa)) : nullptr;
}

}  // namespace

std::unique_ptr<Kernel> MakeAttentionOf(const KernelSpec& spec, const AttentionKernels& table) {
  if (IsBackward(spec)) return std::make_unique<AttentionBackwardKernel>(spec, table);
  return std::make_unique<AttentionForwardKernel>(spec, table);
}

// Over dealt tokens (`axes`) attention stands for the steps of a ring, and is none of these.
std::unique_ptr<Kernel> MakeAttention(const KernelSpec& spec, Isa isa) {
  return spec.attributes.Has("axes") ? nullptr : MakeServed(spec, isa);
}
std::unique_ptr<Kernel> MakeAttentionBackward(const KernelSpec& spec, Isa isa) {
  return spec.attributes.Has("axes") ? nullptr : MakeServed(spec, isa);
}
std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, Isa isa) {
  return MakeServed(spec, isa);
}
std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, Isa isa) {
  return MakeServed(spec, isa);
}

}  // namespace temper
