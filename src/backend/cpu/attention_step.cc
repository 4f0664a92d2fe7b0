// Steps of ring attention (graph/ops/attention_step.cc). A rank's tokens of a row are two chunks in the order of
// places, so what a query sees of another rank's keys is still one run of them: the tiles of attention.cc serve. Chunks
// that causality excludes make empty runs, which are left out whole.
#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention_units.h"
#include "graph/ops/context_attributes.h"

namespace temper {
namespace {

// What both kernels know of the tokens.
struct Dealt {
  ContextPart queries, keys;
  int64_t rows, window;

  Dealt(const KernelSpec& spec, int64_t tokens)
      : queries(ContextPartOf(spec.attributes, "row")),
        keys(ContextPartOf(spec.attributes, "row", "origin")),
        rows(tokens / queries.local_row()),
        window(spec.attributes.IntOr("window", 0)) {}

  int64_t length() const { return queries.local_row(); }
  // The keys that query t sees, counted from the first of its row: [first, last]; last < first: none.
  int32_t First(int64_t t, int64_t document_start) const {
    const int64_t place = queries.PlaceOf(t);
    const int64_t from = window > 0 ? std::max(document_start, place - window + 1) : document_start;
    return static_cast<int32_t>(keys.LocalFrom(from) - t / length() * length());
  }
  int32_t Last(int64_t t) const {
    return static_cast<int32_t>(keys.LocalFrom(queries.PlaceOf(t) + 1) - t / length() * length() - 1);
  }

  // Documents begin in the row of their tokens, and not earlier than those before them.
  Status Check(const int32_t* document_start) const {
    for (int64_t t = 0; t < rows * length(); ++t) {
      const int64_t place = queries.PlaceOf(t), row = place / queries.row * queries.row;
      const bool behind = t % length() == 0 || document_start[t] >= document_start[t - 1];
      if (document_start[t] >= row && document_start[t] <= place && behind) continue;
      return Corrupt(
          fmt::format("[attention_step] the token at place {} says that its document starts at {}; documents "
                      "follow one another within rows of {} tokens",
                      place, document_start[t], queries.row));
    }
    return OkStatus();
  }
};

class AttentionStepKernel final : public Kernel {
 public:
  AttentionStepKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[0], isa),
        dealt_(spec, spec.inputs[0].shape[0]),
        threads_(spec.threads),
        acc_(spec.attributes.Flag("acc")),
        sum_elements_(spec.inputs[0].shape.elements()),
        lse_elements_(spec.inputs[0].shape[0] * heads_.heads),
        scratch_(AttentionScratchOf({spec.inputs[0].shape[0], dealt_.length(), heads_.E}, false, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const auto* document_start = reinterpret_cast<const int32_t*>(args.inputs[3]);
    TEMPER_RETURN_IF_ERROR(dealt_.Check(document_start));
    if (acc_ && args.outputs[0] != args.inputs[4]) {
      std::memcpy(args.outputs[0], args.inputs[4], static_cast<size_t>(sum_elements_) * sizeof(float));
    }
    if (acc_ && args.outputs[1] != args.inputs[5]) {
      std::memcpy(args.outputs[1], args.inputs[5], static_cast<size_t>(lse_elements_) * sizeof(float));
    }
    const int64_t segments = (dealt_.length() + kSegment - 1) / kSegment, per_row = segments * heads_.kv_heads;
    ForEachUnit(threads_, dealt_.rows * per_row, next_, [&](int64_t item, int thread) {
      // Late queries see more keys: they come first.
      const int64_t row = item / per_row * dealt_.length();
      const int64_t begin = (segments - 1 - item % per_row / heads_.kv_heads) * kSegment;
      RunSegment(args, document_start, row, begin, std::min(dealt_.length(), begin + kSegment), item % heads_.kv_heads,
                 args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  // Queries [begin, end) of the row whose tokens begin at `row`.
  void RunSegment(const KernelArgs& args, const int32_t* document_start, int64_t row, int64_t begin, int64_t end,
                  int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    int32_t first[kSegment], last[kSegment];
    const int32_t origin = dealt_.First(row + begin, document_start[row + begin]);
    for (int64_t t = begin; t < end; ++t) {
      first[t - begin] = dealt_.First(row + t, document_start[row + t]) - origin;
      last[t - begin] = dealt_.Last(row + t) - origin;
    }
    const int64_t keys = last[end - 1 - begin] + 1;
    if (keys <= 0) return;
    const int64_t at = (row + origin) * h.key_stride() + kv * h.E;
    std::byte *k_panels = scratch + scratch_.k_panels.v, *v_panels = scratch + scratch_.v_panels.v;
    h.PackTokens(h.At(args.inputs[1], at), h.key_stride(), keys, k_panels);
    h.PackDepth(h.At(args.inputs[2], at), h.key_stride(), keys, v_panels);
    AttentionForwardTile tile = {.q_stride = h.query_stride(),
                                 .k_panels = k_panels,
                                 .v_panels = v_panels,
                                 .k_panel_bytes = h.PanelBytes(h.E),
                                 .v_panel_bytes = h.PanelBytes(keys),
                                 .keys = keys,
                                 .E = h.E,
                                 .scale = h.scale,
                                 .scratch = scratch + scratch_.tile.v,
                                 .resume = acc_,
                                 .lse_stride = h.heads};
    for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
      for (int64_t t = begin; t < end; t += h.kernels->rows) {
        const int64_t at_q = (row + t) * h.query_stride() + head * h.E;
        tile.rows = static_cast<int>(std::min<int64_t>(h.kernels->rows, end - t));
        tile.first = first + (t - begin);
        tile.last = last + (t - begin);
        tile.q = h.At(args.inputs[0], at_q);
        tile.sums = reinterpret_cast<float*>(args.outputs[0]) + at_q;
        tile.lse = reinterpret_cast<float*>(args.outputs[1]) + (row + t) * h.heads + head;
        h.kernels->forward(tile);
      }
    }
  }

  const HeadLayout heads_;
  const Dealt dealt_;
  const int threads_;
  const bool acc_;
  const int64_t sum_elements_, lse_elements_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

class AttentionStepBackwardKernel final : public Kernel {
 public:
  AttentionStepBackwardKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[1], isa),
        dealt_(spec, spec.inputs[1].shape[0]),
        threads_(spec.threads),
        acc_(spec.attributes.Flag("acc")),
        sum_elements_(spec.inputs[1].shape.elements()),
        scratch_(AttentionScratchOf({spec.inputs[1].shape[0], dealt_.length(), heads_.E}, true, threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
  }

  Status Run(const KernelArgs& args) override {
    const auto* document_start = reinterpret_cast<const int32_t*>(args.inputs[6]);
    TEMPER_RETURN_IF_ERROR(dealt_.Check(document_start));
    const size_t bytes = static_cast<size_t>(sum_elements_) * sizeof(float);
    if (!acc_) {
      std::memset(args.outputs[0], 0, bytes);
    } else if (args.outputs[0] != args.inputs[7]) {
      std::memcpy(args.outputs[0], args.inputs[7], bytes);
    }
    ForEachUnit(threads_, dealt_.rows * heads_.kv_heads, next_, [&](int64_t item, int thread) {
      RunRow(args, document_start, item / heads_.kv_heads * dealt_.length(), item % heads_.kv_heads,
             args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  // All queries of the row whose tokens begin at `row`.
  void RunRow(const KernelArgs& args, const int32_t* document_start, int64_t row, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const int64_t length = dealt_.length(), at = row * h.key_stride() + kv * h.E;
    const int64_t L = dealt_.Last(row + length - 1) + 1;  // keys behind these are seen by none
    const auto padded_rows = [](int64_t n) { return (n + kAttentionBlock - 1) / kAttentionBlock * kAttentionBlock; };
    float* d_k = reinterpret_cast<float*>(scratch + scratch_.d_k.v);
    float* d_v = reinterpret_cast<float*>(scratch + scratch_.d_v.v);
    float* d_q = reinterpret_cast<float*>(scratch + scratch_.d_q.v);
    const auto sum_bytes = static_cast<size_t>(padded_rows(length) * h.padded_E() * 4);
    std::memset(d_k, 0, sum_bytes);
    std::memset(d_v, 0, sum_bytes);
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
    for (int64_t i = 0; i < length; i += kAttentionBlock) {
      block.rows = std::min(kAttentionBlock, length - i);
      for (int64_t r = 0; r < block.rows; ++r) {
        first[r] = dealt_.First(row + i + r, document_start[row + i + r]);
        last[r] = dealt_.Last(row + i + r);
      }
      if (last[block.rows - 1] < first[0]) continue;
      for (int64_t head = kv * h.group; head < (kv + 1) * h.group; ++head) {
        const int64_t at_q = (row + i) * h.query_stride() + head * h.E;
        block.row_panel_bytes = h.PanelBytes(block.rows);
        const std::byte *d_o = h.At(args.inputs[0], at_q), *q = h.At(args.inputs[1], at_q);
        h.kernels->copy_rows(q, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.q_rows.v);
        h.kernels->copy_rows(d_o, h.query_stride(), block.rows, kAttentionBlock, h.E, scratch + scratch_.d_o_rows.v);
        h.PackDepth(q, h.query_stride(), block.rows, scratch + scratch_.q_panels.v);
        h.PackDepth(d_o, h.query_stride(), block.rows, scratch + scratch_.d_o_panels.v);
        h.kernels->row_dots(d_o, h.At(args.inputs[4], at_q), h.query_stride(), block.rows, h.E, delta);
        for (int64_t r = 0; r < block.rows; ++r) {
          lse[r] = reinterpret_cast<const float*>(args.inputs[5])[(row + i + r) * h.heads + head];
        }
        std::memset(d_q, 0, static_cast<size_t>(kAttentionBlock * h.padded_E() * 4));
        for (int64_t j = first[0] / kAttentionBlock * kAttentionBlock; j <= last[block.rows - 1];
             j += kAttentionBlock) {
          block.first_key = j;
          block.keys = std::min(kAttentionBlock, L - j);
          block.d_k = d_k + j * h.padded_E();
          block.d_v = d_v + j * h.padded_E();
          h.kernels->backward(block);
        }
        h.kernels->add_rows(d_q, h.scale, block.rows, h.E, true, reinterpret_cast<float*>(args.outputs[0]) + at_q,
                            h.query_stride());
      }
    }
    const auto write = [&](const float* sums, float scale, int output) {
      h.kernels->add_rows(sums, scale, length, h.E, false, reinterpret_cast<float*>(args.outputs[output]) + at,
                          h.key_stride());
    };
    write(d_k, h.scale, 1);
    write(d_v, 1, 2);
  }

  const HeadLayout heads_;
  const Dealt dealt_;
  const int threads_;
  const bool acc_;
  const int64_t sum_elements_;
  const AttentionScratch scratch_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::unique_ptr<Kernel> MakeAttentionStep(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[0])) return nullptr;
  return std::make_unique<AttentionStepKernel>(spec, isa);
}

std::unique_ptr<Kernel> MakeAttentionStepBackward(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[1])) return nullptr;
  return std::make_unique<AttentionStepBackwardKernel>(spec, isa);
}

}  // namespace temper
