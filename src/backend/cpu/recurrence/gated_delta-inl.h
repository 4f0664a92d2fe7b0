// The gated delta rule in chunks (graph/ops/gated_delta.cc has the recurrence). With G_i the sum of g up to token i of
// a chunk, decay_ij = exp(G_i - G_j) for j <= i, rows k_i and q_i normed, S the state at the chunk's begin, C its
// tokens:
//
//   (I + A) U = R,   A_ij = beta_i (k_i . k_j) decay_ij for j < i,   R_i = beta_i (v_i - exp(G_i) S^T k_i)
//   o_i = exp(G_i) S^T q_i + sum over j <= i of P_ij U_j,   P_ij = (q_i . k_j) decay_ij
//   S <- exp(G_C) S + sum over i of exp(G_C - G_i) k_i U_i^T
//
// (Yang et al. 2024, Parallelizing Linear Transformers with the Delta Rule; the WY form). All sums are f32, in a fixed
// order within a document's chunk.
#pragma once

#include "backend/cpu/recurrence/gated_delta_rows.h"

// clang-format off
#include "backend/cpu/recurrence/chunk-inl.h"
// clang-format on

namespace temper {
namespace {

// Rows of a triangular system that are solved one by one, behind products with what is solved.
constexpr int64_t kSolveRows = 16;

// Vectors of kStateChunk floats in DeltaScratch::gates_C.
enum Gate { kSum, kSumRest, kRead, kKeep, kBeta, kInverseQ, kInverseK, kDSum, kDBeta, kSpare };

// y = scale * x / its norm; returns 1 / norm.
template <class T>
TEMPER_VEC float LoadNormed(const T* x, float scale, int64_t n, float* y) {
  const float squares = Total(n, [x](int64_t d, auto lanes) {
    const Floats a = Load(x + d, lanes);
    return a * a;
  });
  const float inverse = 1 / __builtin_sqrtf(squares + static_cast<float>(kDeltaNormEps));
  Sweep(n, [=](int64_t d, auto lanes) { Store(y + d, Load(x + d, lanes) * Set(inverse * scale), lanes); });
  return inverse;
}

// One chunk of a row: of its n tokens from `first` on.
template <class T>
class DeltaChunk {
 public:
  DeltaChunk(const DeltaRow<T>& row, int64_t first, int64_t n)
      : row_(row), first_(first), n_(n), D_(row.dims.key_dim), F_(row.dims.value_dim) {}

  float* At(int64_t offset) const { return row_.scratch + offset; }
  float* Of(Gate gate) const { return At(row_.at.gates_C) + gate * C; }
  float* State(int64_t j) const { return At(row_.at.state_GDF) + j * D_ * F_; }
  int64_t n() const { return n_; }

  // What the value heads of the group share: normed rows, their products.
  void LoadKeys(bool queries) const {
    const float scale = 1 / __builtin_sqrtf(static_cast<float>(D_));
    float *const k = At(row_.at.k_CD), *const q = At(row_.at.q_CD);
    for (int64_t i = 0; i < n_; ++i) {
      Of(kInverseK)[i] = LoadNormed(row_.k + KeyAt(i), 1, D_, k + i * D_);
      if (queries) Of(kInverseQ)[i] = LoadNormed(row_.q + KeyAt(i), scale, D_, q + i * D_);
    }
    Transpose(k, n_, D_, D_, At(row_.at.k_DC), C);
    Multiply({n_, n_, D_, k, D_, 1, At(row_.at.k_DC), C, At(row_.at.kk_CC), C});
    if (queries) Multiply({n_, n_, D_, q, D_, 1, At(row_.at.k_DC), C, At(row_.at.qk_CC), C});
  }

  // Decays of value head j, and U from its state, which stays as it is. Leaves S^T k in y_CF.
  void Solve(int64_t j) const {
    float *const sum = Of(kSum), *const rest = Of(kSumRest), *const u = At(row_.at.u_CF), *const y = At(row_.at.y_CF);
    float *const decay = At(row_.at.decay_CC), *const system = At(row_.at.system_CC), *const kk = At(row_.at.kk_CC);
    FindDecays(row_.g + GateAt(0, j), row_.dims.value_heads, n_, {sum, rest, Of(kRead), Of(kKeep), decay});
    for (int64_t i = 0; i < n_; ++i) Of(kBeta)[i] = ToFloat(row_.b[GateAt(i, j)]);
    Sweep(n_, [&](int64_t i, auto lanes) { Store(Of(kBeta) + i, LogisticOf(Load(Of(kBeta) + i, lanes)).s, lanes); });
    for (int64_t i = 0; i < n_; ++i) {
      SetZero(system + i * C, n_);
      Sweep(i, [&](int64_t s, auto lanes) {
        const Floats product = Load(kk + i * C + s, lanes) * Load(decay + i * C + s, lanes);
        Store(system + i * C + s, Set(-Of(kBeta)[i]) * product, lanes);
      });
    }
    Multiply({n_, F_, D_, At(row_.at.k_CD), D_, 1, State(j), F_, y, F_});
    for (int64_t i = 0; i < n_; ++i) {
      const T* const v = row_.v + ValueAt(i, j);
      const Floats beta = Set(Of(kBeta)[i]), read = Set(Of(kRead)[i]);
      Sweep(F_, [&](int64_t f, auto lanes) {
        Store(u + i * F_ + f, beta * (Load(v + f, lanes) - read * Load(y + i * F_ + f, lanes)), lanes);
      });
    }
    for (int64_t i = 0; i < n_; i += kSolveRows) {
      const int64_t end = i + kSolveRows < n_ ? i + kSolveRows : n_;
      Multiply({end - i, F_, i, system + i * C, C, 1, u, F_, u + i * F_, F_, /*accumulate=*/true});
      for (int64_t r = i + 1; r < end; ++r) {
        for (int64_t s = i; s < r; ++s) AddScaled(u + s * F_, system[r * C + s], u + r * F_, F_);
      }
    }
  }

  // The state behind the chunk.
  void Write(int64_t j) const {
    float *const decayed = At(row_.at.decayed_CD), *const S = State(j);
    DecayRows(At(row_.at.k_CD), Of(kKeep), n_, D_, decayed);
    ScaleRow(S, Of(kRead)[n_ - 1], D_ * F_);
    Multiply({D_, F_, n_, decayed, 1, D_, At(row_.at.u_CF), F_, S, F_, /*accumulate=*/true});
  }

  // P, of queries and keys.
  void ReadOthers() const {
    float *const read = At(row_.at.read_CC), *const qk = At(row_.at.qk_CC), *const decay = At(row_.at.decay_CC);
    for (int64_t i = 0; i < n_; ++i) {
      Sweep(n_, [&](int64_t s, auto lanes) {
        Store(read + i * C + s, Load(qk + i * C + s, lanes) * Load(decay + i * C + s, lanes), lanes);
      });
    }
  }

  // o of value head j, from the state at the chunk's begin and U.
  void Read(int64_t j, T* o) const {
    float* const out = At(row_.at.y_CF);
    DecayRows(At(row_.at.q_CD), Of(kRead), n_, D_, At(row_.at.decayed_CD));
    Multiply({n_, F_, D_, At(row_.at.decayed_CD), D_, 1, State(j), F_, out, F_});
    for (int64_t i = 0; i < n_; i += kSolveRows) {
      const int64_t end = i + kSolveRows < n_ ? i + kSolveRows : n_;
      Multiply({end - i, F_, end, At(row_.at.read_CC) + i * C, C, 1, At(row_.at.u_CF), F_, out + i * F_, F_, true});
    }
    for (int64_t i = 0; i < n_; ++i) CopyRow(out + i * F_, o + ValueAt(i, j), F_);
  }

  // Sets the sums of gradients that value heads share to zero.
  void BeginGradients() const {
    SetZero(At(row_.at.d_q_CD), n_ * D_);
    SetZero(At(row_.at.d_k_CD), n_ * D_);
    SetZero(At(row_.at.d_kk_CC), n_ * C);
    SetZero(At(row_.at.d_qk_CC), n_ * C);
  }

  // Gradients of value head j. REQUIRES: Solve(j) and ReadOthers. d_state: of the state behind the chunk; becomes that
  // of the state at its begin.
  void Backward(int64_t j, const DeltaGradients<T>& gradients) const {
    const float *const q = At(row_.at.q_CD), *const k = At(row_.at.k_CD), *const u = At(row_.at.u_CF);
    const float *const y = At(row_.at.y_CF), *const S = State(j), *const read = At(row_.at.read_CC);
    float *const dS = At(row_.at.d_state_GDF) + j * D_ * F_, *const decayed = At(row_.at.decayed_CD);
    float *const d_o = At(row_.at.d_o_CF), *const d_u = At(row_.at.d_u_CF), *const u_FC = At(row_.at.u_FC);
    float *const S_FD = At(row_.at.state_FD), *const dS_FD = At(row_.at.d_state_FD);
    float *const d_q = At(row_.at.d_q_CD), *const d_k = At(row_.at.d_k_CD);
    float *const d_sum = Of(kDSum), *const d_beta = Of(kDBeta);
    SetZero(d_sum, n_);
    for (int64_t i = 0; i < n_; ++i) {
      CopyRow(gradients.d_o + ValueAt(i, j), d_o + i * F_, F_);
    }
    Transpose(u, n_, F_, F_, u_FC, C);
    Transpose(S, D_, F_, F_, S_FD, D_);
    Transpose(dS, D_, F_, F_, dS_FD, D_);

    // d_U: of what the chunk leaves in the state, and of what queries read.
    DecayRows(k, Of(kKeep), n_, D_, decayed);
    Multiply({n_, F_, D_, decayed, D_, 1, dS, F_, d_u, F_});
    Multiply({n_, F_, n_, read, 1, C, d_o, F_, d_u, F_, true});

    // Through P.
    float* const d_read = At(row_.at.d_read_CC);
    Multiply({n_, n_, F_, d_o, F_, 1, u_FC, C, d_read, C});
    PairGradients(d_read, At(row_.at.qk_CC), /*self=*/1, nullptr, At(row_.at.d_qk_CC));

    // Through exp(G_i) q_i, which reads the state: d of it in `decayed`.
    Multiply({n_, D_, F_, d_o, F_, 1, S_FD, D_, decayed, D_});
    for (int64_t i = 0; i < n_; ++i) {
      AddScaled(decayed + i * D_, Of(kRead)[i], d_q + i * D_, D_);
      d_sum[i] += Of(kRead)[i] * DotOf(decayed + i * D_, q + i * D_, D_);
    }
    // Through exp(G_C - G_i) k_i, which is written to the state.
    Multiply({n_, D_, F_, u, F_, 1, dS_FD, D_, decayed, D_});
    float kept = Of(kRead)[n_ - 1] * DotOf(S, dS, D_ * F_);  // of exp(G_C)
    for (int64_t i = 0; i < n_; ++i) {
      AddScaled(decayed + i * D_, Of(kKeep)[i], d_k + i * D_, D_);
      if (i == n_ - 1) continue;  // the last token's is 1
      const float along = Of(kKeep)[i] * DotOf(decayed + i * D_, k + i * D_, D_);
      d_sum[i] -= along;
      kept += along;
    }
    d_sum[n_ - 1] += kept;

    // d_R, in d_u: the transposed system, from the last rows on.
    const float* const system = At(row_.at.system_CC);
    for (int64_t i = (n_ - 1) / kSolveRows * kSolveRows; i >= 0; i -= kSolveRows) {
      const int64_t end = i + kSolveRows < n_ ? i + kSolveRows : n_;
      Multiply({end - i, F_, n_ - end, system + end * C + i, 1, C, d_u + end * F_, F_, d_u + i * F_, F_, true});
      for (int64_t r = end - 1; r > i; --r) {
        for (int64_t s = i; s < r; ++s) AddScaled(d_u + r * F_, system[r * C + s], d_u + s * F_, F_);
      }
    }
    // Through A: d_A = -d_R U^T.
    Multiply({n_, n_, F_, d_u, F_, 1, u_FC, C, d_read, C});
    for (int64_t i = 0; i < n_; ++i) ScaleRow(d_read + i * C, -1, n_);
    SetZero(d_beta, n_);
    PairGradients(d_read, At(row_.at.kk_CC), /*self=*/0, d_beta, At(row_.at.d_kk_CC));

    // Through R: to v, beta, G, and in d_u to S^T k.
    for (int64_t i = 0; i < n_; ++i) {
      const float beta = Of(kBeta)[i], decay = Of(kRead)[i];
      const T* const v = row_.v + ValueAt(i, j);
      T* const d_v = gradients.d_v + ValueAt(i, j);
      float* const d_r = d_u + i * F_;
      const float held = DotOf(d_r, y + i * F_, F_);
      const float given = Total(F_, [&](int64_t f, auto lanes) { return Load(d_r + f, lanes) * Load(v + f, lanes); });
      d_beta[i] += given - decay * held;
      d_sum[i] -= beta * decay * held;
      Sweep(F_, [&](int64_t f, auto lanes) { Store(d_v + f, Set(beta) * Load(d_r + f, lanes), lanes); });
      ScaleRow(d_r, -beta * decay, F_);
    }
    Multiply({n_, D_, F_, d_u, F_, 1, S_FD, D_, d_k, D_, true});

    // The state at the begin: decayed, read by queries, held for keys.
    ScaleRow(dS, Of(kRead)[n_ - 1], D_ * F_);
    DecayRows(q, Of(kRead), n_, D_, decayed);
    Multiply({D_, F_, n_, decayed, 1, D_, d_o, F_, dS, F_, true});
    Multiply({D_, F_, n_, k, 1, D_, d_u, F_, dS, F_, true});

    // G_i sums g up to i.
    float after = 0;
    for (int64_t i = n_; i-- > 0;) {
      gradients.d_g[GateAt(i, j)] = after += d_sum[i];
      const float beta = Of(kBeta)[i];
      gradients.d_b[GateAt(i, j)] = FromFloat<T>(d_beta[i] * beta * (1 - beta));
    }
  }

  // Gradients of q and k, of all value heads.
  void EndGradients(const DeltaGradients<T>& gradients) const {
    const float *const q = At(row_.at.q_CD), *const k = At(row_.at.k_CD);
    float *const d_q = At(row_.at.d_q_CD), *const d_k = At(row_.at.d_k_CD);
    const float *const d_qk = At(row_.at.d_qk_CC), *const d_kk = At(row_.at.d_kk_CC);
    Multiply({n_, D_, n_, d_qk, C, 1, k, D_, d_q, D_, true});
    Multiply({n_, D_, n_, d_qk, 1, C, q, D_, d_k, D_, true});
    Multiply({n_, D_, n_, d_kk, C, 1, k, D_, d_k, D_, true});
    Multiply({n_, D_, n_, d_kk, 1, C, k, D_, d_k, D_, true});
    const float scale = 1 / __builtin_sqrtf(static_cast<float>(D_));
    for (int64_t i = 0; i < n_; ++i) {
      StoreGradient(q + i * D_, d_q + i * D_, Of(kInverseQ)[i], scale, gradients.d_q + KeyAt(i));
      StoreGradient(k + i * D_, d_k + i * D_, Of(kInverseK)[i], 1, gradients.d_k + KeyAt(i));
    }
  }

 private:
  int64_t KeyAt(int64_t i) const { return ((first_ + i) * row_.dims.key_heads + row_.head) * D_; }
  int64_t GateAt(int64_t i, int64_t j) const {
    return (first_ + i) * row_.dims.value_heads + row_.head * row_.group + j;
  }
  int64_t ValueAt(int64_t i, int64_t j) const { return GateAt(i, j) * F_; }

  // d_x from the gradient of y = scale * x * inverse, whose unit is y / scale.
  void StoreGradient(const float* y, const float* d_y, float inverse, float scale, T* d_x) const {
    const Floats along = Set(DotOf(y, d_y, D_) / scale);
    Sweep(D_, [=](int64_t d, auto lanes) {
      const Floats off = Set(scale) * Load(d_y + d, lanes) - Load(y + d, lanes) * along;
      Store(d_x + d, Set(inverse) * off, lanes);
    });
  }
  // d_pair_CC is the gradient of factor_i * products_ij * decay_ij for j < i + self, the factor being beta where d_beta
  // is asked for, else 1. Adds to d_products, to the gradients of G and of beta. Leaves d_pair_CC changed.
  void PairGradients(float* d_pair, const float* products, int64_t self, float* d_beta, float* d_products) const {
    const float* const decay = At(row_.at.decay_CC);
    float* const d_sum = Of(kDSum);
    for (int64_t i = 0; i < n_; ++i) {
      const float factor = d_beta == nullptr ? 1 : Of(kBeta)[i];
      float* const d = d_pair + i * C;
      // A token's own pair has no decay: it adds to no gradient of G, not even what rounding would leave of it.
      if (self != 0) d_products[i * C + i] += d[i] * decay[i * C + i] * factor;
      Floats along = Zero();
      Sweep(i, [&](int64_t s, auto lanes) {
        const Floats decayed = Load(d + s, lanes) * Load(decay + i * C + s, lanes);
        float* const sum = d_products + i * C + s;
        Store(sum, Fma(decayed, Set(factor), Load(sum, lanes)), lanes);
        const Floats value = Keep(decayed * Load(products + i * C + s, lanes), lanes);
        along += value;
        Store(d_sum + s, Load(d_sum + s, lanes) - value * Set(factor), lanes);
      });
      const float all = Sum(along);
      d_sum[i] += all * factor;
      if (d_beta != nullptr) d_beta[i] += all;
    }
  }

  const DeltaRow<T>& row_;
  const int64_t first_, n_, D_, F_;
};

template <class T>
void DeltaForward(const DeltaRow<T>& row, T* o) {
  const int64_t states = row.group * row.dims.key_dim * row.dims.value_dim;
  ForEachDocument(row.begin, row.end, row.document_start, [&](int64_t first, int64_t end) {
    SetZero(row.scratch + row.at.state_GDF, states);
    for (int64_t t = first; t < end; t += C) {
      const DeltaChunk<T> chunk(row, t, ChunkEnd(t, end) - t);
      chunk.LoadKeys(/*queries=*/true);
      for (int64_t j = 0; j < row.group; ++j) {
        chunk.Solve(j);
        chunk.ReadOthers();
        chunk.Read(j, o);
        chunk.Write(j);
      }
    }
  });
}

template <class T>
void DeltaBackward(const DeltaRow<T>& row, const DeltaGradients<T>& gradients) {
  const int64_t states = row.group * row.dims.key_dim * row.dims.value_dim;
  float *const S = row.scratch + row.at.state_GDF, *const kept = row.scratch + row.at.states_NGDF;
  ForEachDocument(row.begin, row.end, row.document_start, [&](int64_t first, int64_t end) {
    SetZero(S, states);
    const int64_t last = first + (end - 1 - first) / C * C;  // the last chunk's begin
    for (int64_t t = first; t < last; t += C) {
      CopyRow(S, kept + (t - first) / C * states, states);
      const DeltaChunk<T> chunk(row, t, C);
      chunk.LoadKeys(/*queries=*/false);
      for (int64_t j = 0; j < row.group; ++j) {
        chunk.Solve(j);
        chunk.Write(j);
      }
    }
    SetZero(row.scratch + row.at.d_state_GDF, states);
    for (int64_t t = last; t >= first; t -= C) {
      if (t != last) CopyRow(kept + (t - first) / C * states, S, states);
      const DeltaChunk<T> chunk(row, t, ChunkEnd(t, end) - t);
      chunk.LoadKeys(/*queries=*/true);
      chunk.BeginGradients();
      for (int64_t j = 0; j < row.group; ++j) {
        chunk.Solve(j);
        chunk.ReadOthers();
        chunk.Backward(j, gradients);
      }
      chunk.EndGradients(gradients);
    }
  });
}

// The recurrence itself: any split of a sequence into steps gives the same bits.
template <class T>
void DeltaStepsOf(const DeltaSteps<T>& steps, T* o) {
  const DeltaDims& d = steps.dims;
  const int64_t D = d.key_dim, F = d.value_dim, key_head = steps.head / (d.value_heads / d.key_heads);
  float *const k = steps.scratch, *const q = k + (D + 15) / 16 * 16;
  const float scale = 1 / __builtin_sqrtf(static_cast<float>(D));
  for (int64_t t = 0; t < d.tokens; ++t) {
    const int64_t key_at = (t * d.key_heads + key_head) * D, gate_at = t * d.value_heads + steps.head;
    LoadNormed(steps.k + key_at, 1, D, k);
    LoadNormed(steps.q + key_at, scale, D, q);
    const float decay = OfOne(steps.g[gate_at], [](Floats x) { return Exp(x); });
    const float beta = OfOne(ToFloat(steps.b[gate_at]), [](Floats x) { return LogisticOf(x).s; });
    const T* const v = steps.v + gate_at * F;
    T* const out = o + gate_at * F;
    if (steps.slot[t] < 0) {
      Sweep(F, [=](int64_t f, auto lanes) { Store(out + f, Zero(), lanes); });
      continue;
    }
    float* const S = steps.states + (steps.slot[t] * d.value_heads + steps.head) * D * F;
    if (steps.position[t] == 0) SetZero(S, D * F);
    // Columns of the state by vectors: what a key holds, what is written, what a query reads.
    Sweep(F, [&](int64_t f, auto lanes) {
      Floats held = Zero(), read = Zero();
      for (int64_t i = 0; i < D; ++i) {
        float* const s = S + i * F + f;
        const Floats decayed = Load(s, lanes) * Set(decay);
        Store(s, decayed, lanes);
        held = Fma(decayed, Set(k[i]), held);
      }
      const Floats written = Set(beta) * (Load(v + f, lanes) - held);
      for (int64_t i = 0; i < D; ++i) {
        float* const s = S + i * F + f;
        const Floats after = Fma(Set(k[i]), written, Load(s, lanes));
        Store(s, after, lanes);
        read = Fma(after, Set(q[i]), read);
      }
      Store(out + f, read, lanes);
    });
  }
}

constexpr DeltaKernels kTable = {{DeltaForward<float>, DeltaBackward<float>, DeltaStepsOf<float>},
                                 {DeltaForward<bf16>, DeltaBackward<bf16>, DeltaStepsOf<bf16>}};

}  // namespace
}  // namespace temper
