// Bodies of attention_tile.h, once per instruction set. Included after the products of a tile, attention_sums-inl.h or
// attention_sums_amx-inl.h.
#pragma once

#include <type_traits>

#include "backend/cpu/vector/exp-inl.h"

namespace temper {
namespace {

constexpr float kMinusInfinity = -__builtin_inff();

// Distances between rows of words in scratch: whole lines, but not multiples of 4 KiB, where rows would fall into the
// same lines of the first-level cache. Constant, so that the rows of a tile need one address register.
constexpr int64_t Spaced(int64_t words) {
  return words + 16;
}

// f32 panels and probabilities, of operands in T.
template <class T>
struct F32Math {
  using Element = T;
  using Words = Floats;
  using PanelWord = int;
  static constexpr int64_t kStep = 1;
  static constexpr float kExponentFactor = 1;

  static TEMPER_INLINE Words LoadWords(const int* p) { return Load(reinterpret_cast<const float*>(p), Full{}); }
  static TEMPER_INLINE Words Broadcast(const int* p) { return Set(*reinterpret_cast<const float*>(p)); }
  static TEMPER_INLINE Floats MultiplyAdd(Floats sum, Words a, Words b) { return Fma(a, b, sum); }
  static TEMPER_INLINE Floats Exponential(Floats x) { return Exp(x); }  // of kExponentFactor = 1 times the argument
  static TEMPER_INLINE void CopyRow(const T* from, int64_t E, int* to) {
    for (int64_t e = 0; e < E; e += kLanes) StoreRow(to, e, Load(from + e, Full{}));
  }
  static TEMPER_INLINE void StoreRow(int* row, int64_t column, Floats x) {
    Store(reinterpret_cast<float*>(row) + column, x, Full{});
  }
  // Rows `row` and `row` + 1 as lines `column`.. of a panel of kAttentionBlock lines, whose k are rows.
  static TEMPER_INLINE void StorePanel(int* panel, int64_t row, int64_t column, Floats even, Floats odd) {
    float* p = reinterpret_cast<float*>(panel) + row * kAttentionBlock + column;
    Store(p, even, Full{});
    Store(p + kAttentionBlock, odd, Full{});
  }
};

// The same where panels hold bf16, in half the memory.
struct F32MathOfBF16Panels : F32Math<bf16> {
  using PanelWord = uint16_t;
  static TEMPER_INLINE Words LoadWords(const uint16_t* p) { return Load(reinterpret_cast<const bf16*>(p), Full{}); }
};

template <class Math>
constexpr int64_t kQueryWords = Spaced(kHeadPiece / Math::kStep);
template <class Math>
constexpr int64_t kBlockWords = Spaced(kAttentionBlock / Math::kStep);
constexpr int64_t kScoreWords = Spaced(kKeysAtOnce);

TEMPER_VEC int64_t Smaller(int64_t a, int64_t b) {
  return a < b ? a : b;
}
TEMPER_VEC int64_t RoundUpTo(int64_t a, int64_t unit) {
  return (a + unit - 1) / unit * unit;
}
template <class Word = int>
TEMPER_VEC const Word* PanelAt(const void* panels, int64_t bytes) {
  return reinterpret_cast<const Word*>(static_cast<const char*>(panels) + bytes);
}

// Elements [begin, end) of a row. REQUIRES: begin <= end.
TEMPER_VEC void Fill(float* row, int64_t begin, int64_t end, float x) {
  for (; begin + kLanes <= end; begin += kLanes) Store(row + begin, Set(x), Full{});
  if (begin < end) Store(row + begin, Set(x), First(end - begin));
}

template <class Math>
void CopyRows(const void* source, int64_t stride, int64_t rows, int64_t padded_rows, int64_t E, void* to) {
  const auto* in = static_cast<const typename Math::Element*>(source);
  int* out = static_cast<int*>(to);
  for (int64_t e = 0; e < E; e += kHeadPiece, out += padded_rows * kQueryWords<Math>) {
    const int64_t width = Smaller(kHeadPiece, E - e);
    const int64_t words = width / Math::kStep, padded_words = RoundUpTo(words, kDepthWords);
    for (int64_t i = 0; i < padded_rows; ++i) {
      int* const row = out + i * kQueryWords<Math>;
      if (i < rows) Math::CopyRow(in + i * stride + e, width, row);
      for (int64_t w = i < rows ? words : 0; w < padded_words; ++w) row[w] = 0;
    }
  }
}

// Adds to `sum` the products of kRows rows that CopyRows has made, of padded_rows, with a panel E deep.
template <class Math>
TEMPER_VEC void AddRowProduct(const int* rows, int64_t padded_rows, const typename Math::PanelWord* panel, int64_t E,
                              Sums& sum) {
  for (int64_t e = 0; e < E; e += kHeadPiece) {
    AddProduct<Math, kQueryWords<Math>>(rows, panel, Smaller(kHeadPiece, E - e) / Math::kStep, sum);
    rows += padded_rows * kQueryWords<Math>;
    panel += kHeadPiece / Math::kStep * kColumns;
  }
}

TEMPER_VEC Floats RoundedToBF16(Floats x) {
  bf16 rounded[kLanes];
  Store(rounded, x, Full{});
  return Load(rounded, Full{});
}

// ALiBi: what the scores of a tile's rows begin with, for keys [key, key + kColumns). Rows that are not there: zero.
TEMPER_VEC void BeginWithSlopes(const float* slopes, bool rounded, const int32_t* first, const int32_t* last,
                                int64_t rows, int64_t key, Sums& sum) {
  alignas(64) float begin[kRows * kColumns];
  alignas(64) float lane[kLanes];
  for (int i = 0; i < kLanes; ++i) lane[i] = static_cast<float>(i);
  const Floats lanes = Load(lane, Full{});
  for (int64_t i = 0; i < kRows; ++i) {
    for (int64_t j = 0; j < kColumns; j += kLanes) {
      Floats grown = Zero();
      if (i < rows && rounded) {
        const Floats place = RoundedToBF16(lanes + Set(static_cast<float>(key + j - first[i])));
        const Floats own = RoundedToBF16(Set(static_cast<float>(last[i] - first[i])));
        grown = RoundedToBF16(place * Set(slopes[i])) - RoundedToBF16(own * Set(slopes[i]));
      } else if (i < rows) {
        grown = (lanes + Set(static_cast<float>(key + j - last[i]))) * Set(slopes[i]);
      }
      Store(begin + i * kColumns + j, grown, Full{});
    }
  }
  LoadSums(begin, kColumns, sum);
}

// Scores without scale, as if the products had been capped ones: the softmax that follows scales them.
struct Cap {
  float inward, outward;  // scale / cap, cap / scale
  Cap(float scale, float cap) : inward(scale / cap), outward(cap / scale) {}
};

template <class Math>
constexpr int64_t kForwardScratch = 4 * kRows*(kQueryWords<Math> + kScoreWords + kHeadPiece);

// In pages, pieces of keys end at multiples of kKeysAtOnce, so that where a row's sums are rescaled depends on its own
// keys alone.
template <class Math, bool kCapped, bool kPaged>
void ForwardOf(const AttentionForwardTile& t) {
  using T = typename Math::Element;
  using Word = typename Math::PanelWord;
  int* q = static_cast<int*>(t.scratch);
  // A row's probabilities replace its scores, from the front. Rows that are not there score 0: zero in any type.
  int* const probability = q + RoundUpTo(t.E, kHeadPiece) / kHeadPiece * kRows * kQueryWords<Math>;
  float* score = reinterpret_cast<float*>(probability);
  float* o = score + kRows * kScoreWords;
  const int64_t padded_W = RoundUpTo(t.W, kColumns);
  const float factor = t.scale * Math::kExponentFactor;
  const Cap cap(t.scale, kCapped ? t.cap : 1);
  // By row: the largest score without scale and the sum of exponentials, of all keys so far and of those at hand.
  constexpr int kAll = (kRows + kLanes - 1) / kLanes * kLanes;
  float largest[kAll], total[kAll], now[kAll], shift[kAll], sum_now[kAll], rescale[kAll];
  for (int i = 0; i < kAll; ++i) {
    largest[i] = now[i] = kMinusInfinity;
    total[i] = sum_now[i] = shift[i] = 0;
  }
  for (int i = 0; t.sinks != nullptr && i < t.rows; ++i) {
    largest[i] = t.sinks[i] / t.scale;
    total[i] = 1;
  }
  const int64_t begin = t.first[0] / kColumns * kColumns, end = t.last[t.rows - 1] + 1;
  if (t.resume) {
    if (begin >= end) return;
    for (int i = 0; i < kRows; ++i) {
      float* row = o + i * padded_W;
      Fill(row, 0, padded_W, 0);
      if (i >= t.rows) continue;
      largest[i] = t.lse[i * t.lse_stride] / t.scale;
      total[i] = 1;
      for (int64_t e = 0; e < t.W; e += kLanes) Store(row + e, Load(t.sums + i * t.o_stride + e, Full{}), Full{});
    }
  }
  CopyRows<Math>(t.q, t.q_stride, t.rows, kRows, t.E, q);

  int64_t n = 0;
  for (int64_t key = begin; key < end; key += n) {
    n = Smaller(kPaged ? kKeysAtOnce - key % kKeysAtOnce : kKeysAtOnce, end - key);
    const int64_t columns = RoundUpTo(n, kColumns);
    for (int64_t j = 0; j < columns; j += kColumns) {
      Sums sum;
      if (t.slopes == nullptr) {
        ClearSums(sum);
      } else {
        BeginWithSlopes(t.slopes, t.rounded_slopes, t.first, t.last, t.rows, key + j, sum);
      }
      int64_t at = (key + j) / kColumns * t.k_panel_bytes;
      if constexpr (kPaged) {
        at = t.pages[(key + j) / t.page_keys] * t.k_page_bytes + (key + j) % t.page_keys / kColumns * t.k_panel_bytes;
      }
      AddRowProduct<Math>(q, kRows, PanelAt<Word>(t.k_panels, at), t.E, sum);
      StoreSums(sum, score + j, kScoreWords);
    }
    for (int i = 0; i < t.rows; ++i) {
      float* s = score + i * kScoreWords;
      const int64_t from = t.first[i] < key ? 0 : Smaller(t.first[i] - key, columns);
      const int64_t to = t.last[i] < key ? 0 : Smaller(t.last[i] + 1 - key, columns);
      if constexpr (kCapped) {
        for (int64_t j = 0; j < columns; j += kLanes) {
          Store(s + j, Tanh(Load(s + j, Full{}) * Set(cap.inward)) * Set(cap.outward), Full{});
        }
      }
      Fill(s, 0, from, kMinusInfinity);
      Fill(s, to < from ? from : to, columns, kMinusInfinity);
      Floats a = Set(largest[i]), b = a;
      for (int64_t j = 0; j < columns; j += kColumns) {
        a = Larger(a, Load(s + j, Full{}));
        b = Larger(b, Load(s + j + kLanes, Full{}));
      }
      now[i] = LargestLane(Larger(a, b));
      // A row that has seen no key yet: exponentials of -infinity against anything finite.
      shift[i] = (now[i] == kMinusInfinity ? 0 : now[i]) * factor;
    }
    // What a row needs is known before it begins, so that a processor computes several of them at once.
    for (int i = 0; i < t.rows; ++i) {
      const float* s = score + i * kScoreWords;
      int* p = probability + i * kScoreWords;
      Floats sum0 = Zero(), sum1 = Zero();
      for (int64_t j = 0; j < columns; j += kColumns) {
        const Floats e0 = Math::Exponential(Fma(Load(s + j, Full{}), Set(factor), Set(-shift[i])));
        const Floats e1 = Math::Exponential(Fma(Load(s + j + kLanes, Full{}), Set(factor), Set(-shift[i])));
        sum0 += e0;
        sum1 += e1;
        Math::StoreRow(p, j, e0);
        Math::StoreRow(p, j + kLanes, e1);
      }
      sum_now[i] = Sum(sum0 + sum1);
    }
    for (int i = 0; i < kAll; i += kLanes) {
      const Floats before = Load(largest + i, Full{});
      const Floats r = Math::Exponential(Fma(before, Set(factor), Zero() - Load(shift + i, Full{})));
      Store(rescale + i, r, Full{});
      if constexpr (kPaged) {
        // Exactly 1 where the maximum stays: for rows that see none of these keys nothing may change.
        for (int row = i; row < i + kLanes; ++row) {
          if (now[row] == largest[row]) rescale[row] = 1;
        }
      }
      Store(total + i, Load(total + i, Full{}) * Load(rescale + i, Full{}) + Load(sum_now + i, Full{}), Full{});
      Store(largest + i, Load(now + i, Full{}), Full{});
    }
    for (int64_t e = 0; e < t.W; e += kColumns) {
      Sums sum;
      if (key == begin && !t.resume) {
        ClearSums(sum);
      } else {
        LoadScaledSums(o + e, padded_W, rescale, sum);
      }
      const int64_t column = e / kColumns * t.v_panel_bytes;
      if constexpr (kPaged) {
        for (int64_t done = 0, count = 0; done < n; done += count) {
          const int64_t in_page = (key + done) % t.page_keys;
          count = Smaller(t.page_keys - in_page, n - done);
          const Word* v = PanelAt<Word>(t.v_panels, t.pages[(key + done) / t.page_keys] * t.v_page_bytes + column);
          AddProduct<Math, kScoreWords>(probability + done / Math::kStep, v + in_page / Math::kStep * kColumns,
                                        (count + Math::kStep - 1) / Math::kStep, sum);
        }
      } else {
        const int* v = PanelAt(t.v_panels, column) + key / Math::kStep * kColumns;
        AddProduct<Math, kScoreWords>(probability, v, (n + Math::kStep - 1) / Math::kStep, sum);
      }
      StoreSums(sum, o + e, padded_W);
    }
  }

  T* out = static_cast<T*>(t.o);
  for (int i = 0; i < t.rows; ++i) {
    const Floats inverse = Set(1 / total[i]);
    for (int64_t e = 0; e < t.W; e += kLanes) {
      const Floats x = Load(o + i * padded_W + e, Full{}) * inverse;
      if (t.sums != nullptr) {
        Store(t.sums + i * t.o_stride + e, x, Full{});
      } else {
        Store(out + i * t.o_stride + e, x, Full{});
      }
    }
    if (t.lse != nullptr) {
      t.lse[i * t.lse_stride] =
          static_cast<float>(static_cast<double>(largest[i]) * t.scale + __builtin_log(static_cast<double>(total[i])));
    }
  }
}

template <class Math, bool kPaged>
void Forward(const AttentionForwardTile& t) {
  return t.cap == 0 ? ForwardOf<Math, false, kPaged>(t) : ForwardOf<Math, true, kPaged>(t);
}

template <class Math>
constexpr int64_t kPanelWords = kAttentionBlock / Math::kStep* kAttentionBlock;
template <class Math>
constexpr int64_t kBlockScratch = 4 *
                                  (2 * kPanelWords<Math> + kAttentionBlock * kBlockWords<Math> + 2 * kRows * kColumns);
template <class Math>
constexpr int64_t kBackwardScratch = kBlockScratch<Math> > kTurningScratch ? kBlockScratch<Math> : kTurningScratch;

// Adds to kRows rows of sums, a column of panels at a time.
template <class Math, int64_t kRowWords>
TEMPER_VEC void AddToRows(const int* a, const void* panels, int64_t panel_bytes, int64_t first_step, int64_t steps,
                          int64_t padded_E, float* rows) {
  for (int64_t e = 0; e < padded_E; e += kColumns) {
    Sums sum;
    LoadSums(rows + e, padded_E, sum);
    AddProduct<Math, kRowWords>(a, PanelAt(panels, e / kColumns * panel_bytes) + first_step * kColumns, steps, sum);
    StoreSums(sum, rows + e, padded_E);
  }
}

template <class Math, bool kCapped>
void BackwardOf(const AttentionBackwardBlock& b) {
  int* p_panel = static_cast<int*>(b.scratch);
  int* d_s_panel = p_panel + kPanelWords<Math>;
  int* d_s_rows = d_s_panel + kPanelWords<Math>;
  float* p_tile = reinterpret_cast<float*>(d_s_rows + kAttentionBlock * kBlockWords<Math>);
  float* slope_tile = p_tile + kRows * kColumns;  // of the cap
  const int64_t padded_E = RoundUpTo(b.E, kColumns);
  const float factor = b.scale * Math::kExponentFactor;
  const Cap cap(b.scale, kCapped ? b.cap : 1);
  int64_t seen[kAttentionBlock / kRows];  // keys of the block that some row of a tile sees: [0, seen)

  for (int64_t i0 = 0; i0 < b.rows; i0 += kRows) {
    const int64_t rows = Smaller(kRows, b.rows - i0);
    const int64_t last = b.last[i0 + rows - 1] + 1 - b.first_key;
    const int64_t keys = last < 0 ? 0 : Smaller(last, b.keys), columns = RoundUpTo(keys, kColumns);
    seen[i0 / kRows] = keys;
    float shift[kRows], delta[kRows];
    int64_t from[kRows], to[kRows];
    for (int i = 0; i < kRows; ++i) {
      const int64_t row = i0 + (i < rows ? i : rows - 1);
      shift[i] = -b.lse[row] * Math::kExponentFactor;
      delta[i] = b.delta[row];
      from[i] = b.first[row] - b.first_key;
      to[i] = i < rows ? b.last[row] + 1 - b.first_key : 0;
    }
    for (int64_t j = 0; j < columns; j += kColumns) {
      const int64_t panel = (b.first_key + j) / kColumns;
      const int* a = static_cast<const int*>(b.q_rows) + i0 * kQueryWords<Math>;
      Sums sum;
      if (b.slopes == nullptr) {
        ClearSums(sum);
      } else {
        BeginWithSlopes(b.slopes + i0, b.rounded_slopes, b.first + i0, b.last + i0, rows, b.first_key + j, sum);
      }
      AddRowProduct<Math>(a, kAttentionBlock, PanelAt(b.k_panels, panel * b.k_panel_bytes), b.E, sum);
      SettleSums(sum);
      // Rows see more keys one after the other, and begin at later ones.
      const bool masked = rows < kRows || to[0] < j + kColumns || from[kRows - 1] > j;
#pragma GCC unroll 16
      for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const int64_t column = j + v * kLanes;
          Floats s = SumAt(sum, i, v);
          if constexpr (kCapped) {
            const Floats t = Tanh(s * Set(cap.inward));
            Store(slope_tile + i * kColumns + v * kLanes, Fma(Zero() - t, t, Set(1.0f)), Full{});
            s = t * Set(cap.outward);
          }
          Floats p = Math::Exponential(Fma(s, Set(factor), Set(shift[i])));
          if (masked) p = KeepRange(p, from[i] - column, to[i] - column);
          Store(p_tile + i * kColumns + v * kLanes, p, Full{});
        }
      }
      a = static_cast<const int*>(b.d_o_rows) + i0 * kQueryWords<Math>;
      ClearSums(sum);
      AddRowProduct<Math>(a, kAttentionBlock, PanelAt(b.v_panels, panel * b.v_panel_bytes), b.W, sum);
      SettleSums(sum);
#pragma GCC unroll 8
      for (int i = 0; i < kRows; i += 2) {
#pragma GCC unroll 2
        for (int v = 0; v < 2; ++v) {
          const int64_t column = j + v * kLanes;
          const float* p = p_tile + i * kColumns + v * kLanes;
          const Floats even = Load(p, Full{}), odd = Load(p + kColumns, Full{});
          Floats d_even = even * (SumAt(sum, i, v) - Set(delta[i]));
          Floats d_odd = odd * (SumAt(sum, i + 1, v) - Set(delta[i + 1]));
          if constexpr (kCapped) {
            const float* slope = slope_tile + i * kColumns + v * kLanes;
            d_even *= Load(slope, Full{});
            d_odd *= Load(slope + kColumns, Full{});
          }
          Math::StorePanel(p_panel, i0 + i, column, even, odd);
          Math::StorePanel(d_s_panel, i0 + i, column, d_even, d_odd);
          Math::StoreRow(d_s_rows + (i0 + i) * kBlockWords<Math>, column, d_even);
          Math::StoreRow(d_s_rows + (i0 + i + 1) * kBlockWords<Math>, column, d_odd);
        }
      }
    }
    for (int64_t j = columns; j < kAttentionBlock; j += kLanes) {
      for (int i = 0; i < kRows; i += 2) {
        Math::StorePanel(p_panel, i0 + i, j, Zero(), Zero());
        Math::StorePanel(d_s_panel, i0 + i, j, Zero(), Zero());
      }
    }
  }

  const int64_t all_steps = (b.rows + Math::kStep - 1) / Math::kStep;
  for (int64_t k = 0; k < b.keys; k += kRows) {
    int64_t tile = 0;  // the first of rows that see one of these keys
    while (tile * kRows < b.rows && seen[tile] <= k) ++tile;
    const int64_t first = tile * kRows / Math::kStep, steps = all_steps - first;
    if (steps <= 0) break;
    AddToKeys<Math>(p_panel, static_cast<const char*>(b.d_o_panels), b.row_panel_bytes, first, steps, k, b.W, b.d_v);
    AddToKeys<Math>(d_s_panel, static_cast<const char*>(b.q_panels), b.row_panel_bytes, first, steps, k, b.E, b.d_k);
  }
  for (int64_t i0 = 0; i0 < b.rows; i0 += kRows) {
    const int64_t steps = (seen[i0 / kRows] + Math::kStep - 1) / Math::kStep;
    AddToRows<Math, kBlockWords<Math>>(d_s_rows + i0 * kBlockWords<Math>, b.k_depth_panels, b.k_depth_panel_bytes,
                                       b.first_key / Math::kStep, steps, padded_E, b.d_q + i0 * padded_E);
  }
}

template <class Math>
void Backward(const AttentionBackwardBlock& b) {
  return b.cap == 0 ? BackwardOf<Math, false>(b) : BackwardOf<Math, true>(b);
}

template <class T>
void RowDots(const void* a, const void* b, int64_t stride, int64_t rows, int64_t E, float* out) {
  const T *x = static_cast<const T*>(a), *y = static_cast<const T*>(b);
  for (int64_t i = 0; i < rows; ++i) {
    Floats sum = Zero();
    for (int64_t e = 0; e < E; e += kLanes) {
      sum = Fma(Load(x + i * stride + e, Full{}), Load(y + i * stride + e, Full{}), sum);
    }
    out[i] = Sum(sum);
  }
}

template <class T>
void WriteRows(const float* sums, float scale, int64_t rows, int64_t E, void* to, int64_t stride) {
  T* out = static_cast<T*>(to);
  const int64_t padded_E = RoundUpTo(E, kColumns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = 0; e < E; e += kLanes) {
      Store(out + i * stride + e, Load(sums + i * padded_E + e, Full{}) * Set(scale), Full{});
    }
  }
}

TEMPER_VEC void AddRows(const float* sums, float scale, int64_t rows, int64_t E, bool add, float* to, int64_t stride) {
  const int64_t padded_E = RoundUpTo(E, kColumns);
  for (int64_t i = 0; i < rows; ++i) {
    for (int64_t e = 0; e < E; e += kLanes) {
      float* const at = to + i * stride + e;
      const Floats before = add ? Load(at, Full{}) : Zero();
      Store(at, Fma(Load(sums + i * padded_E + e, Full{}), Set(scale), before), Full{});
    }
  }
}

// `Paged`: the arithmetic over panels in the type of q; void: not over pages.
template <class Math, class Paged>
constexpr AttentionKernels AttentionTable(const TileKernels& tiles) {
  AttentionKernels table = {.tiles = &tiles,
                            .rows = kRows,
                            .columns = kColumns,
                            .row_bytes = 4 * kQueryWords<Math>,
                            .forward_scratch = kForwardScratch<Math>,
                            .backward_scratch = kBackwardScratch<Math>,
                            .forward = Forward<Math, false>,
                            .forward_paged = nullptr,
                            .paged_step = 0,
                            .backward = Backward<Math>,
                            .turn_keys = kTurnKeys,
                            .copy_rows = CopyRows<Math>,
                            .row_dots = RowDots<typename Math::Element>,
                            .write_rows = WriteRows<typename Math::Element>,
                            .add_rows = AddRows};
  if constexpr (!std::is_void_v<Paged>) {
    table.forward_paged = Forward<Paged, true>;
    table.paged_step = Paged::kStep;
  }
  return table;
}

}  // namespace
}  // namespace temper
