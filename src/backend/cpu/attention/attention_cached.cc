// Attention of new tokens against a cache of earlier keys and values (decoding). Pages of the cache are panels that
// tiles read where they lie: a step writes its own tokens there and packs nothing else. So a token costs what reading
// its sequence's keys and values costs.
//
// What a token gets depends on its own keys alone, to the bit: tiles sum up keys in pieces that begin at multiples of
// kKeysAtOnce, whoever else is in the step (attention_tile-inl.h).
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "backend/cpu/attention/attention_units.h"
#include "graph/ops/attention_cache.h"
#include "graph/ops/attention_heads.h"

namespace temper {
namespace {

// Elements of a key go to one line of a panel of `lines` keys, whose steps hold `step` elements of each line.
template <class T>
void StoreKey(const std::byte* key, int64_t E, int64_t lines, int64_t step, int64_t at, std::byte* panels) {
  const T* from = reinterpret_cast<const T*>(key);
  T* to = reinterpret_cast<T*>(panels) + at / lines * lines * E + at % lines * step;
  for (int64_t e = 0; e < E; e += step, to += lines * step) {
    for (int64_t i = 0; i < step; ++i) to[i] = from[e + i];
  }
}

// Elements of a value go to one place of each line of panels that are `page` deep. The rest of its step, if behind it,
// becomes zero: products take whole steps.
template <class T>
void StoreValue(const std::byte* value, int64_t W, int64_t lines, int64_t step, int64_t at, int64_t page,
                std::byte* panels) {
  const T* from = reinterpret_cast<const T*>(value);
  for (int64_t e = 0; e < W; ++e) {
    T* to = reinterpret_cast<T*>(panels) + e / lines * lines * page + at / step * step * lines + e % lines * step;
    to[at % step] = from[e];
    for (int64_t i = at % step + 1; i < step; ++i) to[i] = T();
  }
}

// A query's heads of one group are rows of one tile: they see the same keys. Matrix units would compute 32 of them, and
// what decoding waits for is the cache: tiles are those of vectors.
class AttentionCachedKernel final : public Kernel {
 public:
  AttentionCachedKernel(const KernelSpec& spec, Isa isa)
      : heads_(spec, spec.inputs[0], spec.inputs[2], AttentionKernelsOf(spec.inputs[0].dtype, VectorIsa(isa))),
        tokens_(spec.inputs[0].shape[0]),
        page_(spec.attributes.Int("page")),
        pages_(spec.inputs[3].shape[0] / page_),
        slots_(spec.inputs[7].shape[0]),
        slot_pages_(spec.inputs[7].shape[1]),
        wide_(CachedWidth(heads_.W)),
        threads_(spec.threads),
        stored_(spec.attributes.Flag("stored")),
        sink_(AttentionOptionsOf(spec.attributes, 8).sink),
        sink_type_(sink_ < 0 ? ElementFormat(DType::kF32) : spec.inputs[static_cast<size_t>(sink_)].dtype),
        cache_bytes_{spec.inputs[3].bytes(), spec.inputs[4].bytes()},
        scratch_(CachedScratchOf(tokens_, std::max(heads_.E, heads_.W), threads_)) {
    TEMPER_CHECK(scratch_.bytes <= spec.workspace) << scratch_.bytes.v << " of " << spec.workspace.v;
    TEMPER_CHECK(page_ % heads_.kernels->columns == 0 && heads_.kernels->paged_step > 0) << page_;
  }

  Status Run(const KernelArgs& args) override {
    const Step step{reinterpret_cast<const int32_t*>(args.inputs[5]), reinterpret_cast<const int32_t*>(args.inputs[6]),
                    reinterpret_cast<const int32_t*>(args.inputs[7])};
    TEMPER_RETURN_IF_ERROR(Check(step));
    for (int i = 0; i < 2 && !stored_; ++i) {
      if (args.outputs[1 + i] != args.inputs[3 + i]) {
        std::memcpy(args.outputs[1 + i], args.inputs[3 + i], static_cast<size_t>(cache_bytes_[i].v));
      }
    }
    const HeadLayout& h = heads_;
    TokenRun* const runs = reinterpret_cast<TokenRun*>(args.workspace + scratch_.runs.v);
    const int64_t n = RunsOf(step, runs, args.outputs[0]);
    if (!stored_) ForEachUnit(*h.tiles, threads_, h.kv_heads, next_, [&](int64_t kv, int) { Append(args, step, kv); });
    ForEachUnit(*h.tiles, threads_, n * h.kv_heads, next_, [&](int64_t item, int thread) {
      Attend(args, step, runs[item / h.kv_heads], item % h.kv_heads,
             args.workspace + scratch_.threads.v + scratch_.thread_bytes.v * thread);
    });
    return OkStatus();
  }

 private:
  struct Step {
    const int32_t *slot, *position, *page_table;
  };
  // Tokens [begin, end) at places of one slot that follow each other.
  struct TokenRun {
    int32_t begin, end;
  };
  static_assert(sizeof(TokenRun) == kCachedRunBytes);

  Status Check(const Step& s) const {
    for (int64_t i = 0; i < tokens_; ++i) {
      if (s.slot[i] < 0) continue;
      if (s.slot[i] >= slots_ || s.position[i] < 0 || s.position[i] >= slot_pages_ * page_) {
        return InvalidArgument(fmt::format("token {} is at place {} of slot {}, of {} slots of {} tokens", i,
                                           s.position[i], s.slot[i], slots_, slot_pages_ * page_));
      }
      for (int64_t p = 0; p <= s.position[i] / page_; ++p) {
        const int32_t at = s.page_table[s.slot[i] * slot_pages_ + p];
        if (at < 0 || at >= pages_) {
          return InvalidArgument(fmt::format("page {} of slot {} is {}, of {} pages", p, s.slot[i], at, pages_));
        }
      }
    }
    return OkStatus();
  }

  // Runs of at most a tile's rows times kTilesPerRun; zeroes the rows of tokens that stand for nothing.
  int64_t RunsOf(const Step& s, TokenRun* runs, std::byte* o) const {
    constexpr int64_t kTilesPerRun = 4;
    const int64_t most = kTilesPerRun * heads_.kernels->rows;
    int64_t n = 0;
    for (int64_t i = 0; i < tokens_; ++i) {
      if (s.slot[i] < 0) {
        std::memset(heads_.At(o, i * heads_.out_stride()), 0,
                    static_cast<size_t>(heads_.out_stride() * heads_.element));
      } else if (n > 0 && runs[n - 1].end == i && i - runs[n - 1].begin < most && s.slot[i] == s.slot[i - 1] &&
                 s.position[i] == s.position[i - 1] + 1) {
        runs[n - 1].end = static_cast<int32_t>(i + 1);
      } else {
        runs[n++] = {static_cast<int32_t>(i), static_cast<int32_t>(i + 1)};
      }
    }
    return n;
  }

  // Writes the new keys and values of head `kv`. What ends a step of a panel goes after what begins it.
  void Append(const KernelArgs& args, const Step& s, int64_t kv) {
    const HeadLayout& h = heads_;
    const int64_t lines = h.kernels->columns, step = h.kernels->paged_step;
    for (int64_t phase = 0; phase < step; ++phase) {
      for (int64_t i = 0; i < tokens_; ++i) {
        if (s.slot[i] < 0 || s.position[i] % step != phase) continue;
        const int64_t page = s.page_table[s.slot[i] * slot_pages_ + s.position[i] / page_];
        const int64_t at = s.position[i] % page_;
        const std::byte* key = h.At(args.inputs[1], i * h.key_stride() + kv * h.E);
        const std::byte* value = h.At(args.inputs[2], i * h.value_stride() + kv * h.W);
        std::byte* keys = h.At(args.outputs[1], (page * h.kv_heads + kv) * page_ * h.E);
        std::byte* values = h.At(args.outputs[2], (page * h.kv_heads + kv) * page_ * wide_);
        if (h.element == 4) {
          StoreKey<uint32_t>(key, h.E, lines, step, at, keys);
          StoreValue<uint32_t>(value, h.W, lines, step, at, page_, values);
        } else {
          StoreKey<uint16_t>(key, h.E, lines, step, at, keys);
          StoreValue<uint16_t>(value, h.W, lines, step, at, page_, values);
        }
      }
    }
  }

  void Attend(const KernelArgs& args, const Step& s, const TokenRun& tokens, int64_t kv, std::byte* scratch) {
    const HeadLayout& h = heads_;
    const int64_t lines = h.kernels->columns;
    const std::byte* const keys = stored_ ? args.inputs[3] : args.outputs[1];
    const std::byte* const values = stored_ ? args.inputs[4] : args.outputs[2];
    float sinks[kAttentionBlock], slopes[kAttentionBlock];
    int32_t first[kAttentionBlock], last[kAttentionBlock];
    AttentionForwardTile tile = {.first = first,
                                 .last = last,
                                 .k_panels = keys + kv * page_ * h.E * h.element,
                                 .v_panels = values + kv * page_ * wide_ * h.element,
                                 .k_panel_bytes = lines * h.E * h.element,
                                 .v_panel_bytes = lines * page_ * h.element,
                                 .pages = s.page_table + s.slot[tokens.begin] * slot_pages_,
                                 .page_keys = page_,
                                 .k_page_bytes = h.kv_heads * page_ * h.E * h.element,
                                 .v_page_bytes = h.kv_heads * page_ * wide_ * h.element,
                                 .E = h.E,
                                 .W = h.W,
                                 .scale = h.scale,
                                 .cap = h.cap,
                                 .slopes = h.slopes.empty() ? nullptr : slopes,
                                 .rounded_slopes = h.rounded_slopes,
                                 .sinks = sink_ < 0 ? nullptr : sinks,
                                 .scratch = scratch};
    const auto see = [&](int64_t row, int64_t t) {
      last[row] = s.position[t];
      first[row] = static_cast<int32_t>(h.window > 0 ? std::max<int64_t>(0, last[row] - h.window + 1) : 0);
    };
    // The rows are heads from `head` on, or tokens from t on.
    const auto run = [&](int64_t t, int64_t head, int64_t rows, bool of_heads) {
      tile.q_stride = of_heads ? h.E : h.query_stride();
      tile.o_stride = of_heads ? h.W : h.out_stride();
      for (int64_t r = 0; r < rows; ++r) {
        see(r, of_heads ? t : t + r);
        const int64_t of = of_heads ? head + r : head;
        if (sink_ >= 0) sinks[r] = SinkAt(args.inputs[sink_], sink_type_, of);
        if (!h.slopes.empty()) slopes[r] = h.slopes[static_cast<size_t>(of)];
      }
      tile.rows = static_cast<int>(rows);
      tile.q = h.At(args.inputs[0], t * h.query_stride() + head * h.E);
      tile.o = h.At(args.outputs[0], t * h.out_stride() + head * h.W);
      h.kernels->forward_paged(tile);
    };
    const int64_t most = h.kernels->rows, head_end = (kv + 1) * h.group;
    if (tokens.end - tokens.begin < h.group) {
      for (int64_t t = tokens.begin; t < tokens.end; ++t) {
        for (int64_t head = kv * h.group; head < head_end; head += most) {
          run(t, head, std::min(most, head_end - head), true);
        }
      }
      return;
    }
    for (int64_t t = tokens.begin; t < tokens.end; t += most) {
      for (int64_t head = kv * h.group; head < head_end; ++head) {
        run(t, head, std::min<int64_t>(most, tokens.end - t), false);
      }
    }
  }

  const HeadLayout heads_;
  const int64_t tokens_, page_, pages_, slots_, slot_pages_, wide_;
  const int threads_;
  const bool stored_;
  const int sink_;
  const ElementFormat sink_type_;
  const Bytes cache_bytes_[2];
  const CachedScratch scratch_;
  std::atomic<int64_t> next_{0};
};

}  // namespace

std::unique_ptr<Kernel> MakeAttentionCached(const KernelSpec& spec, Isa isa) {
  if (!Served(spec, spec.inputs[0], spec.inputs[2])) return nullptr;
  return std::make_unique<AttentionCachedKernel>(spec, isa);
}

}  // namespace temper
