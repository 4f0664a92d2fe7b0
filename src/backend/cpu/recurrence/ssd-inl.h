// The state-space duality in chunks (graph/ops/ssd.cc has the recurrence). With G_i the sum of g up to token i of a
// chunk, decay_ij = exp(G_i - G_j) for j <= i, S the state at the chunk's begin, C its tokens:
//
//   U_i = dt_i x_i,   y_i = exp(G_i) S^T c_i + sum over j <= i of R_ij U_j + d x_i,   R_ij = (c_i . b_j) decay_ij
//   S <- exp(G_C) S + sum over i of exp(G_C - G_i) b_i U_i^T
//
// (Dao & Gu 2024, the block decomposition of semiseparable matrices). All sums are f32, in a fixed order within a
// document's chunk.
#pragma once

#include "backend/cpu/recurrence/ssd_rows.h"

// clang-format off
#include "backend/cpu/recurrence/chunk-inl.h"
// clang-format on

namespace temper {
namespace {

// Rows of a triangle that are multiplied together, up to their last column.
constexpr int64_t kTriangleRows = 16;

// Vectors of kStateChunk floats in SsdScratch::gates_C.
enum SsdGate { kSsdSum, kSsdRest, kSsdRead, kSsdKeep, kSsdDSum };

// One chunk of a row: of its n tokens from `first` on. Heads j count from the block's first.
template <class T>
class SsdChunk {
 public:
  SsdChunk(const SsdRow<T>& row, int64_t first, int64_t n)
      : row_(row), first_(first), n_(n), N_(row.dims.state_dim), P_(row.dims.value_dim) {}

  // What the heads of the group share: rows of b and c, their products.
  void Begin(bool reads) const {
    for (int64_t i = 0; i < n_; ++i) {
      CopyRow(row_.b + BAt(i), At(row_.at.b_CN) + i * N_, N_);
      if (reads) CopyRow(row_.c + BAt(i), At(row_.at.c_CN) + i * N_, N_);
    }
    if (!reads) return;
    Transpose(At(row_.at.b_CN), n_, N_, N_, At(row_.at.b_NC), C);
    Multiply({n_, n_, N_, At(row_.at.c_CN), N_, 1, At(row_.at.b_NC), C, At(row_.at.cb_CC), C});
  }

  // Decays of head j, and U.
  void BeginHead(int64_t j) const {
    FindDecays(row_.g + GateAt(0, j), row_.dims.heads, n_,
               {Of(kSsdSum), Of(kSsdRest), Of(kSsdRead), Of(kSsdKeep), At(row_.at.decay_CC)});
    for (int64_t i = 0; i < n_; ++i) {
      const T* const x = row_.x + XAt(i, j);
      float* const u = At(row_.at.u_CP) + i * P_;
      const Floats step = Set(row_.dt[GateAt(i, j)]);
      Sweep(P_, [=](int64_t p, auto lanes) { Store(u + p, step * Load(x + p, lanes), lanes); });
    }
  }

  // The state behind the chunk.
  void Write(int64_t j) const {
    float *const kept = At(row_.at.scaled_CN), *const S = State(j);
    DecayRows(At(row_.at.b_CN), Of(kSsdKeep), n_, N_, kept);
    ScaleRow(S, Of(kSsdRead)[n_ - 1], N_ * P_);
    Multiply({N_, P_, n_, kept, 1, N_, At(row_.at.u_CP), P_, S, P_, /*accumulate=*/true});
  }

  // R, of tokens and what they read of others.
  void ReadOthers() const {
    float *const read = At(row_.at.read_CC), *const cb = At(row_.at.cb_CC), *const decay = At(row_.at.decay_CC);
    for (int64_t i = 0; i < n_ * C; i += C) {
      Sweep(n_, [=](int64_t s, auto lanes) {
        Store(read + i + s, Load(cb + i + s, lanes) * Load(decay + i + s, lanes), lanes);
      });
    }
  }

  // y of head j, from the state at the chunk's begin and U.
  void Read(int64_t j, T* y) const {
    float* const out = At(row_.at.y_CP);
    DecayRows(At(row_.at.c_CN), Of(kSsdRead), n_, N_, At(row_.at.scaled_CN));
    Multiply({n_, P_, N_, At(row_.at.scaled_CN), N_, 1, State(j), P_, out, P_});
    for (int64_t i = 0; i < n_; i += kTriangleRows) {
      const int64_t end = i + kTriangleRows < n_ ? i + kTriangleRows : n_;
      Multiply({end - i, P_, end, At(row_.at.read_CC) + i * C, C, 1, At(row_.at.u_CP), P_, out + i * P_, P_, true});
    }
    const Floats skip = Set(Skip(j));
    for (int64_t i = 0; i < n_; ++i) {
      const T* const x = row_.x + XAt(i, j);
      T* const to = y + XAt(i, j);
      const float* const from = out + i * P_;
      Sweep(P_,
            [=](int64_t p, auto lanes) { Store(to + p, Fma(skip, Load(x + p, lanes), Load(from + p, lanes)), lanes); });
    }
  }

  // Sets the sums of gradients that heads share to zero.
  void BeginGradients() const {
    SetZero(At(row_.at.d_b_CN), n_ * N_);
    SetZero(At(row_.at.d_c_CN), n_ * N_);
    SetZero(At(row_.at.d_cb_CC), n_ * C);
  }

  // Gradients of head j. REQUIRES: BeginHead(j) and ReadOthers. d_state: of the state behind the chunk; becomes that of
  // the state at its begin.
  void Backward(int64_t j, const SsdGradients<T>& gradients) const {
    const float *const b = At(row_.at.b_CN), *const c = At(row_.at.c_CN), *const u = At(row_.at.u_CP);
    const float *const S = State(j), *const read = At(row_.at.read_CC);
    float *const dS = At(row_.at.d_state_JNP) + j * N_ * P_, *const scaled = At(row_.at.scaled_CN);
    float *const d_y = At(row_.at.d_y_CP), *const d_u = At(row_.at.d_u_CP), *const u_PC = At(row_.at.u_PC);
    float *const S_PN = At(row_.at.state_PN), *const dS_PN = At(row_.at.d_state_PN);
    float* const d_sum = Of(kSsdDSum);
    SetZero(d_sum, n_);
    for (int64_t i = 0; i < n_; ++i) CopyRow(gradients.d_y + XAt(i, j), d_y + i * P_, P_);
    Transpose(u, n_, P_, P_, u_PC, C);
    Transpose(S, N_, P_, P_, S_PN, N_);
    Transpose(dS, N_, P_, P_, dS_PN, N_);

    // d_U: of what the chunk leaves in the state, and of what tokens read.
    DecayRows(b, Of(kSsdKeep), n_, N_, scaled);
    Multiply({n_, P_, N_, scaled, N_, 1, dS, P_, d_u, P_});
    Multiply({n_, P_, n_, read, 1, C, d_y, P_, d_u, P_, true});

    // Through R.
    Multiply({n_, n_, P_, d_y, P_, 1, u_PC, C, At(row_.at.d_read_CC), C});
    PairGradients();

    // Through exp(G_i) c_i, which reads the state: d of it in `scaled`.
    Multiply({n_, N_, P_, d_y, P_, 1, S_PN, N_, scaled, N_});
    for (int64_t i = 0; i < n_; ++i) {
      AddScaled(scaled + i * N_, Of(kSsdRead)[i], At(row_.at.d_c_CN) + i * N_, N_);
      d_sum[i] += Of(kSsdRead)[i] * DotOf(scaled + i * N_, c + i * N_, N_);
    }
    // Through exp(G_C - G_i) b_i, which is written to the state.
    Multiply({n_, N_, P_, u, P_, 1, dS_PN, N_, scaled, N_});
    float kept = Of(kSsdRead)[n_ - 1] * DotOf(S, dS, N_ * P_);  // of exp(G_C)
    for (int64_t i = 0; i < n_; ++i) {
      AddScaled(scaled + i * N_, Of(kSsdKeep)[i], At(row_.at.d_b_CN) + i * N_, N_);
      if (i == n_ - 1) continue;  // the last token's is 1
      const float along = Of(kSsdKeep)[i] * DotOf(scaled + i * N_, b + i * N_, N_);
      d_sum[i] -= along;
      kept += along;
    }
    d_sum[n_ - 1] += kept;

    // The state at the begin: decayed, and read.
    ScaleRow(dS, Of(kSsdRead)[n_ - 1], N_ * P_);
    DecayRows(c, Of(kSsdRead), n_, N_, scaled);
    Multiply({N_, P_, n_, scaled, 1, N_, d_y, P_, dS, P_, true});

    // To x, dt and d; G_i sums g up to i.
    const Floats skip = Set(Skip(j));
    float after = 0;
    for (int64_t i = n_; i-- > 0;) {
      const T* const x = row_.x + XAt(i, j);
      T* const d_x = gradients.d_x + XAt(i, j);
      const float *const of_u = d_u + i * P_, *const of_y = d_y + i * P_;
      const Floats step = Set(row_.dt[GateAt(i, j)]);
      Sweep(P_, [=](int64_t p, auto lanes) {
        Store(d_x + p, Fma(skip, Load(of_y + p, lanes), step * Load(of_u + p, lanes)), lanes);
      });
      gradients.d_dt[GateAt(i, j)] =
          Total(P_, [=](int64_t p, auto lanes) { return Load(of_u + p, lanes) * Load(x + p, lanes); });
      gradients.d_d[GateAt(i, j)] =
          Total(P_, [=](int64_t p, auto lanes) { return Load(of_y + p, lanes) * Load(x + p, lanes); });
      gradients.d_g[GateAt(i, j)] = after += d_sum[i];
    }
  }

  // Gradients of b and c, of all heads of the block.
  void EndGradients(const SsdGradients<T>& gradients) const {
    const float* const d_cb = At(row_.at.d_cb_CC);
    float *const d_b = At(row_.at.d_b_CN), *const d_c = At(row_.at.d_c_CN);
    Multiply({n_, N_, n_, d_cb, C, 1, At(row_.at.b_CN), N_, d_c, N_, true});
    Multiply({n_, N_, n_, d_cb, 1, C, At(row_.at.c_CN), N_, d_b, N_, true});
    for (int64_t i = 0; i < n_; ++i) {
      CopyRow(d_b + i * N_, gradients.d_b + BAt(i), N_);
      CopyRow(d_c + i * N_, gradients.d_c + BAt(i), N_);
    }
  }

 private:
  float* At(int64_t offset) const { return row_.scratch + offset; }
  float* Of(SsdGate gate) const { return At(row_.at.gates_C) + gate * C; }
  float* State(int64_t j) const { return At(row_.at.state_JNP) + j * N_ * P_; }
  float Skip(int64_t j) const { return ToFloat(row_.d[row_.first_head + j]); }
  int64_t BAt(int64_t i) const { return ((first_ + i) * row_.dims.groups + row_.group) * N_; }
  int64_t GateAt(int64_t i, int64_t j) const { return (first_ + i) * row_.dims.heads + row_.first_head + j; }
  int64_t XAt(int64_t i, int64_t j) const { return GateAt(i, j) * P_; }

  // d_read_CC is the gradient of R. Adds to the gradients of products of c and b, and of G.
  void PairGradients() const {
    float* const d_sum = Of(kSsdDSum);
    for (int64_t i = 0; i < n_; ++i) {
      const float *const d = At(row_.at.d_read_CC) + i * C, *const decay = At(row_.at.decay_CC) + i * C;
      const float* const cb = At(row_.at.cb_CC) + i * C;
      float* const d_cb = At(row_.at.d_cb_CC) + i * C;
      // A token's own pair has no decay: it adds to no gradient of G, not even what rounding would leave of it.
      d_cb[i] += d[i] * decay[i];
      Floats along = Zero();
      Sweep(i, [&](int64_t s, auto lanes) {
        const Floats decayed = Load(d + s, lanes) * Load(decay + s, lanes);
        Store(d_cb + s, Load(d_cb + s, lanes) + decayed, lanes);
        const Floats value = Keep(decayed * Load(cb + s, lanes), lanes);
        along += value;
        Store(d_sum + s, Load(d_sum + s, lanes) - value, lanes);
      });
      d_sum[i] += Sum(along);
    }
  }

  const SsdRow<T>& row_;
  const int64_t first_, n_, N_, P_;
};

template <class T>
void SsdForward(const SsdRow<T>& row, T* y) {
  ForEachDocument(row.begin, row.end, row.document_start, [&](int64_t first, int64_t end) {
    SetZero(row.scratch + row.at.state_JNP, row.heads * row.dims.state_dim * row.dims.value_dim);
    for (int64_t t = first; t < end; t += C) {
      const SsdChunk<T> chunk(row, t, ChunkEnd(t, end) - t);
      chunk.Begin(/*reads=*/true);
      for (int64_t j = 0; j < row.heads; ++j) {
        chunk.BeginHead(j);
        chunk.ReadOthers();
        chunk.Read(j, y);
        chunk.Write(j);
      }
    }
  });
}

template <class T>
void SsdBackward(const SsdRow<T>& row, const SsdGradients<T>& gradients) {
  const int64_t states = row.heads * row.dims.state_dim * row.dims.value_dim;
  float *const S = row.scratch + row.at.state_JNP, *const kept = row.scratch + row.at.states_KJNP;
  ForEachDocument(row.begin, row.end, row.document_start, [&](int64_t first, int64_t end) {
    SetZero(S, states);
    const int64_t last = first + (end - 1 - first) / C * C;  // the last chunk's begin
    for (int64_t t = first; t < last; t += C) {
      CopyRow(S, kept + (t - first) / C * states, states);
      const SsdChunk<T> chunk(row, t, C);
      chunk.Begin(/*reads=*/false);
      for (int64_t j = 0; j < row.heads; ++j) {
        chunk.BeginHead(j);
        chunk.Write(j);
      }
    }
    SetZero(row.scratch + row.at.d_state_JNP, states);
    for (int64_t t = last; t >= first; t -= C) {
      if (t != last) CopyRow(kept + (t - first) / C * states, S, states);
      const SsdChunk<T> chunk(row, t, ChunkEnd(t, end) - t);
      chunk.Begin(/*reads=*/true);
      chunk.BeginGradients();
      for (int64_t j = 0; j < row.heads; ++j) {
        chunk.BeginHead(j);
        chunk.ReadOthers();
        chunk.Backward(j, gradients);
      }
      chunk.EndGradients(gradients);
    }
  });
}

// The recurrence itself: any split of a sequence into steps gives the same bits.
template <class T>
void SsdStepsOf(const SsdSteps<T>& steps, T* y) {
  const SsdDims& dims = steps.dims;
  const int64_t N = dims.state_dim, P = dims.value_dim, group = steps.head / dims.group();
  const Floats skip = Set(ToFloat(steps.d[steps.head]));
  for (int64_t t = 0; t < dims.tokens; ++t) {
    const int64_t gate_at = t * dims.heads + steps.head;
    T* const out = y + gate_at * P;
    if (steps.slot[t] < 0) {
      Sweep(P, [=](int64_t p, auto lanes) { Store(out + p, Zero(), lanes); });
      continue;
    }
    const T* const x = steps.x + gate_at * P;
    const T *const b = steps.b + (t * dims.groups + group) * N, *const c = steps.c + (t * dims.groups + group) * N;
    const float decay = OfOne(steps.g[gate_at], [](Floats g) { return Exp(g); }), step = steps.dt[gate_at];
    float* const S = steps.states + (steps.slot[t] * dims.heads + steps.head) * N * P;
    if (steps.position[t] == 0) SetZero(S, N * P);
    // Columns of the state by vectors.
    Sweep(P, [&](int64_t p, auto lanes) {
      const Floats of_x = Load(x + p, lanes), u = Set(step) * of_x;
      Floats read = Zero();
      for (int64_t n = 0; n < N; ++n) {
        float* const s = S + n * P + p;
        const Floats after = Fma(Set(ToFloat(b[n])), u, Load(s, lanes) * Set(decay));
        Store(s, after, lanes);
        read = Fma(after, Set(ToFloat(c[n])), read);
      }
      Store(out + p, Fma(skip, of_x, read), lanes);
    });
  }
}

template <class T>
void SsdAdd(const float* terms, int64_t count, int64_t stride, int64_t begin, int64_t end, T* y) {
  Sweep(end - begin, [=](int64_t i, auto lanes) {
    Floats sum = Load(terms + begin + i, lanes);
    for (int64_t k = 1; k < count; ++k) sum += Load(terms + k * stride + begin + i, lanes);
    Store(y + begin + i, sum, lanes);
  });
}

constexpr SsdKernels kSsdTable = {{SsdForward<float>, SsdBackward<float>, SsdStepsOf<float>, SsdAdd<float>},
                                  {SsdForward<bf16>, SsdBackward<bf16>, SsdStepsOf<bf16>, SsdAdd<bf16>}};

}  // namespace
}  // namespace temper
