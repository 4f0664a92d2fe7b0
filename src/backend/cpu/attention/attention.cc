// Attention over packed rows, and the steps of a ring over dealt ones. Work is divided into units (attention_seen.h),
// of a head of keys each, forward also into segments of their queries. A unit's keys and values are packed once into
// panels, which all query heads of the group use; scores exist only as a tile. Units do not touch each other's results,
// so any thread may take any unit.
#include "backend/cpu/attention/attention.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "backend/cpu/attention/attention_seen.h"
#include "backend/cpu/attention/attention_units.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_heads.h"

namespace temper {
namespace {

bool IsBackward(const KernelSpec& spec) {
  return spec.op == Op::kAttentionBackward || spec.op == Op::kAttentionStepBackward;
}
const TensorType& QueriesOf(const KernelSpec& spec) {
  return spec.inputs[IsBackward(spec) ? 1 : 0];
}
const TensorType& ValuesOf(const KernelSpec& spec) {
  return spec.inputs[IsBackward(spec) ? 3 : 2];
}

// What forward and backward have in common.
class AttentionKernel : public Kernel {
 protected:
  AttentionKernel(const KernelSpec& spec, const AttentionKernels& table)
      : tokens_(spec, QueriesOf(spec), ValuesOf(spec)),
        heads_(spec, QueriesOf(spec), ValuesOf(spec), table),
        options_(tokens_.is_step() ? AttentionOptions{}
                                   : AttentionOptionsOf(spec.attributes, IsBackward(spec) ? 7 : 4)),
        sink_dtype_(options_.sink < 0 ? ElementFormat(DType::kF32)
                                      : spec.inputs[static_cast<size_t>(options_.sink)].dtype),
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

  float SinkOf(const KernelArgs& args, int64_t head) const {
    return SinkAt(args.inputs[options_.sink], sink_dtype_, head);
  }
  // The units of a micro-batch, whose documents' starts are input `start`.
  Result<int64_t> Prepare(const KernelArgs& args, int start) const {
    const auto ints = [&](int i) { return reinterpret_cast<const int32_t*>(args.inputs[i]); };
    return tokens_.Prepare(ints(start), options_.last < 0 ? nullptr : ints(options_.last), Units(args), Seen(args));
  }

  const AttentionTokens tokens_;
  const HeadLayout heads_;
  const AttentionOptions options_;
  const ElementFormat sink_dtype_;
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
    TEMPER_ASSIGN_OR_RETURN(const int64_t n, Prepare(args, 3));
    if (acc_) {
      const int64_t rows = tokens_.dims().tokens;
      GoOnFrom(args.inputs[4], args.outputs[0], rows * heads_.out_stride() * SizeOf(DType::kF32));
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
    const int64_t at_k = origin * h.key_stride() + kv * h.E, at_v = origin * h.value_stride() + kv * h.W;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.inputs[1], at_k), h.key_stride(), keys, h.E, k_panels);
    h.PackDepth(h.At(args.inputs[2], at_v), h.value_stride(), keys, h.W, v_panels);
    int32_t first[kSegment], last[kSegment];
    for (int64_t t = begin; t < end; ++t) {
      first[t - begin] = static_cast<int32_t>(seen[t].first - origin);
      last[t - begin] = static_cast<int32_t>(seen[t].last - origin);
    }
    float sinks[kAttentionBlock], slopes[kAttentionBlock];
    AttentionForwardTile tile = {.q_stride = h.query_stride(),
                                 .o_stride = h.out_stride(),
                                 .k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .W = h.W,
                                 .scale = h.scale,
                                 .cap = h.cap,
                                 .slopes = h.slopes.empty() ? nullptr : slopes,
                                 .rounded_slopes = h.rounded_slopes,
                                 .sinks = options_.sink < 0 ? nullptr : sinks,
                                 .scratch = scratch + scratch_.tile.v,
                                 .resume = acc_,
                                 .lse_stride = h.heads};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      if (options_.sink >= 0) std::fill_n(sinks, h.kernels->rows, SinkOf(args, head));
      if (!h.slopes.empty()) std::fill_n(slopes, h.kernels->rows, h.slopes[static_cast<size_t>(head)]);
      for (int64_t t = begin; t < end; t += h.kernels->rows) {
        const int64_t at_q = t * h.query_stride() + head * h.E, at_o = t * h.out_stride() + head * h.W;
        tile.rows = static_cast<int>(std::min<int64_t>(h.kernels->rows, end - t));
        tile.first = first + (t - begin);
        tile.last = last + (t - begin);
        tile.q = h.At(args.inputs[0], at_q);
        if (tokens_.is_step()) {
          tile.sums = F32(args.outputs[0]) + at_o;
        } else {
          tile.o = h.At(args.outputs[0], at_o);
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
    TEMPER_ASSIGN_OR_RETURN(const int64_t n, Prepare(args, 6));
    const int64_t d_q_bytes = tokens_.dims().tokens * heads_.query_stride() * SizeOf(DType::kF32);
    if (acc_) {
      GoOnFrom(args.inputs[7], args.outputs[0], d_q_bytes);
    } else if (tokens_.is_step()) {
      std::memset(args.outputs[0], 0, static_cast<size_t>(d_q_bytes));
    }
    ForEachUnit(*heads_.tiles, threads_, n * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      RunUnit(args, units[item / heads_.kv_heads], item % heads_.kv_heads, ThreadScratch(args, thread));
    });
    if (options_.sink >= 0) {
      ForEachUnit(*heads_.tiles, threads_, heads_.heads, next_, [&](int64_t head, int) { AddToSink(args, head); });
    }
    return OkStatus();
  }

 private:
  // Units are of one order for all numbers of threads, but not of one size: a head's queries are added up by
  // themselves.
  void AddToSink(const KernelArgs& args, int64_t head) {
    const HeadLayout& h = heads_;
    const auto* lse = reinterpret_cast<const float*>(args.inputs[5]);
    const double sink = SinkOf(args, head);
    double sum = 0;
    float delta[kAttentionBlock];
    for (int64_t t = 0; t < tokens_.dims().tokens; t += kAttentionBlock) {
      const int64_t rows = std::min(kAttentionBlock, tokens_.dims().tokens - t);
      const int64_t at = t * h.out_stride() + head * h.W;
      h.kernels->row_dots(h.At(args.inputs[0], at), h.At(args.inputs[4], at), h.out_stride(), rows, h.W, delta);
      for (int64_t r = 0; r < rows; ++r) sum -= std::exp(sink - lse[(t + r) * h.heads + head]) * delta[r];
    }
    F32(args.outputs[3])[head] = static_cast<float>(sum);
  }

  void RunUnit(const KernelArgs& args, const AttentionUnit& unit, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const SeenKeys* seen = Seen(args) + unit.begin;
    const int64_t length = unit.end - unit.begin;
    const int64_t at_k = unit.begin * h.key_stride() + kv * h.E, at_v = unit.begin * h.value_stride() + kv * h.W;
    const int64_t L = seen[length - 1].last + 1 - unit.begin;  // keys behind these are seen by none
    const int64_t padded_E = h.Padded(h.E), padded_W = h.Padded(h.W);
    const int64_t sum_rows = (length + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock;
    float* d_k = F32(scratch + scratch_.d_k.v);
    float* d_v = F32(scratch + scratch_.d_v.v);
    float* d_q = F32(scratch + scratch_.d_q.v);
    std::memset(d_k, 0, static_cast<size_t>(sum_rows * padded_E * 4));
    std::memset(d_v, 0, static_cast<size_t>(sum_rows * padded_W * 4));
    h.PackTokens(h.At(args.inputs[2], at_k), h.key_stride(), L, h.E, scratch + scratch_.k_panels.v);
    h.PackTokens(h.At(args.inputs[3], at_v), h.value_stride(), L, h.W, scratch + scratch_.v_panels.v);
    h.PackDepth(h.At(args.inputs[2], at_k), h.key_stride(), L, h.E, scratch + scratch_.k_depth_panels.v);

    int32_t first[kAttentionBlock], last[kAttentionBlock];
    float lse[kAttentionBlock], delta[kAttentionBlock], slopes[kAttentionBlock];
    AttentionBackwardBlock block = {.first = first,
                                    .last = last,
                                    .q_rows = scratch + scratch_.q_rows.v,
                                    .d_o_rows = scratch + scratch_.d_o_rows.v,
                                    .q_panels = scratch + scratch_.q_panels.v,
                                    .d_o_panels = scratch + scratch_.d_o_panels.v,
                                    .k_panels = scratch + scratch_.k_panels.v,
                                    .v_panels = scratch + scratch_.v_panels.v,
                                    .k_panel_bytes = h.PanelBytes(h.E),
                                    .v_panel_bytes = h.PanelBytes(h.W),
                                    .k_depth_panels = scratch + scratch_.k_depth_panels.v,
                                    .k_depth_panel_bytes = h.PanelBytes(L),
                                    .lse = lse,
                                    .delta = delta,
                                    .E = h.E,
                                    .W = h.W,
                                    .scale = h.scale,
                                    .cap = h.cap,
                                    .slopes = h.slopes.empty() ? nullptr : slopes,
                                    .rounded_slopes = h.rounded_slopes,
                                    .scratch = scratch + scratch_.tile.v,
                                    .d_q = d_q};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      if (!h.slopes.empty()) std::fill_n(slopes, kAttentionBlock, h.slopes[static_cast<size_t>(head)]);
      for (int64_t i = 0; i < length; i += kAttentionBlock) {
        const int64_t t = unit.begin + i;
        const int64_t at_q = t * h.query_stride() + head * h.E, at_o = t * h.out_stride() + head * h.W;
        block.rows = std::min(kAttentionBlock, length - i);
        for (int64_t r = 0; r < block.rows; ++r) {
          first[r] = seen[i + r].first - unit.begin;
          last[r] = seen[i + r].last - unit.begin;
          lse[r] = reinterpret_cast<const float*>(args.inputs[5])[(t + r) * h.heads + head];
        }
        const int64_t end_key = last[block.rows - 1] + 1;
        if (end_key <= first[0]) continue;
        block.row_panel_bytes = h.PanelBytes(block.rows);
        const std::byte *d_o = h.At(args.inputs[0], at_o), *q = h.At(args.inputs[1], at_q);
        h.kernels->copy_rows(q, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.q_rows.v);
        h.kernels->copy_rows(d_o, h.out_stride(), block.rows, kAttentionBlock, h.W, scratch + scratch_.d_o_rows.v);
        h.PackQueries(q, h.query_stride(), block.rows, h.E, scratch + scratch_.q_panels.v);
        h.PackQueries(d_o, h.out_stride(), block.rows, h.W, scratch + scratch_.d_o_panels.v);
        h.kernels->row_dots(d_o, h.At(args.inputs[4], at_o), h.out_stride(), block.rows, h.W, delta);
        std::memset(d_q, 0, static_cast<size_t>(kAttentionBlock * padded_E * 4));
        for (int64_t j = first[0] / kAttentionBlock * kAttentionBlock; j < end_key; j += kAttentionBlock) {
          block.first_key = j;
          block.keys = std::min(kAttentionBlock, L - j);
          block.d_k = d_k + j * padded_E;
          block.d_v = d_v + j * padded_W;
          h.kernels->backward(block);
        }
        Write(d_q, h.scale, block.rows, h.E, args.outputs[0], at_q, h.query_stride(), /*add=*/true);
      }
    }
    if (h.kernels->turn_keys != nullptr) {
      for (int64_t j = 0; j < L; j += kAttentionBlock) {
        h.kernels->turn_keys(d_k + j * padded_E, h.E, scratch + scratch_.tile.v);
        h.kernels->turn_keys(d_v + j * padded_W, h.W, scratch + scratch_.tile.v);
      }
    }
    Write(d_k, h.scale, length, h.E, args.outputs[1], at_k, h.key_stride(), /*add=*/false);
    Write(d_v, 1, length, h.W, args.outputs[2], at_v, h.value_stride(), /*add=*/false);
  }

  // Rows of scale * sums: rounded, or of a step in f32, of which d_q adds up over the steps.
  void Write(const float* sums, float scale, int64_t rows, int64_t width, std::byte* output, int64_t at, int64_t stride,
             bool add) {
    const HeadLayout& h = heads_;
    if (tokens_.is_step()) {
      h.kernels->add_rows(sums, scale, rows, width, add, F32(output) + at, stride);
    } else {
      h.kernels->write_rows(sums, scale, rows, width, h.At(output, at), stride);
    }
  }
};

std::unique_ptr<Kernel> MakeServed(const KernelSpec& spec, Isa isa) {
  const TensorType& q = QueriesOf(spec);
  return Served(spec, q, ValuesOf(spec)) ? MakeAttentionOf(spec, AttentionKernelsOf(q.dtype, isa)) : nullptr;
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
