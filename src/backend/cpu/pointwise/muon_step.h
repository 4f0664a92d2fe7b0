// Muon as torch.optim.Muon, in f32 (PyTorch iterates in bf16). Of a matrix [rows, columns], s being the shorter side:
//   g  = gradient * clip                 m' = m + (1 - momentum) * (g - m)
//   u  = g + momentum * (m' - g)         without Nesterov's: u = m'
//   x  = u / max(|u|, 1e-7)              |u|: root of the sum of squares
//   five times: p = x x^T                or, of a matrix with more rows than columns, x^T x: [s, s]
//               q = a 1 + b p + c p p    a, b, c: 3.4445, -4.7750, 2.0315
//               x = q x                  or x q
//   w' = keep * w + minus_step * x
#pragma once

#include <cstdint>

namespace temper {

inline constexpr int kMuonSteps = 5;
inline constexpr float kMuonA = 3.4445f, kMuonB = -4.7750f, kMuonC = 2.0315f;
inline constexpr float kMuonLeastNorm = 1e-7f;

// The scalars, each computed in double and rounded to f32 once.
struct MuonScalars {
  float clip;  // factor on every gradient
  float momentum, one_minus_momentum;
  bool nesterov;
  float minus_step;  // -learning_rate, of the step times the attribute lr_factor, times a factor by rows and columns
  float keep;        // 1 - learning_rate * weight_decay
};

class Attributes;
// `clip_2` and `scalars` as graph/op.h lays them out.
MuonScalars PrepareMuon(const Attributes& attributes, int64_t rows, int64_t columns, const float* clip_2,
                        const double* scalars);

// The new momentum of an element, and what the iteration begins with.
inline float NextMomentum(const MuonScalars& s, float g, float m) {
  return m + s.one_minus_momentum * (g - m);
}
inline float LookAhead(const MuonScalars& s, float g, float next) {
  return s.nesterov ? g + s.momentum * (next - g) : next;
}

}  // namespace temper
