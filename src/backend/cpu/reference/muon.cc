// Muon: momentum in f32, element by element as backend/cpu/pointwise/muon_step.h has it; the iteration in double.
#include "backend/cpu/pointwise/muon_step.h"

#include <cmath>
#include <vector>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

// out[m, n] = sum over k of A[m, k] B[k, n], of matrices with the strides (row, column) given.
struct Strided {
  const double* data;
  int64_t row, column;
};
void Multiply(Strided a, Strided b, int64_t m, int64_t n, int64_t k, double* out) {
  for (int64_t i = 0; i < m; ++i) {
    for (int64_t j = 0; j < n; ++j) {
      double sum = 0;
      for (int64_t e = 0; e < k; ++e) sum += a.data[i * a.row + e * a.column] * b.data[e * b.row + j * b.column];
      out[i * n + j] = sum;
    }
  }
}

}  // namespace

Status Muon(const Call& call) {
  const Operand master = call.In(0), gradient = call.In(1), momentum = call.In(2);
  const int64_t rows = master.rows(), columns = master.columns(), n = rows * columns, s = std::min(rows, columns);
  const MuonScalars c = PrepareMuon(call.attributes(), rows, columns, reinterpret_cast<const float*>(call.In(3).data()),
                                    reinterpret_cast<const double*>(call.In(4).data()));
  double *const x = call.Scratch(2 * n + 2 * s * s), *const next = x + n, *const p = next + n, *const q = p + s * s;
  double squares = 0;
  for (int64_t i = 0; i < n; ++i) {
    const float g = static_cast<float>(gradient[i]) * c.clip;
    const float m = NextMomentum(c, g, static_cast<float>(momentum[i]));
    x[i] = static_cast<double>(LookAhead(c, g, m));
    squares += x[i] * x[i];
    call.Out(1).Store(i, static_cast<double>(m));
  }
  const double norm = std::max(std::sqrt(squares), static_cast<double>(kMuonLeastNorm));
  for (int64_t i = 0; i < n; ++i) x[i] /= norm;
  const Strided as_is{x, columns, 1}, transposed{x, 1, columns};
  for (int step = 0; step < kMuonSteps; ++step) {
    const bool wide = rows <= columns;
    Multiply(wide ? as_is : transposed, wide ? transposed : as_is, s, s, std::max(rows, columns), p);
    Multiply({p, s, 1}, {p, s, 1}, s, s, s, q);
    for (int64_t i = 0; i < s * s; ++i) {
      q[i] = static_cast<double>(kMuonC) * q[i] + static_cast<double>(kMuonB) * p[i] +
             (i % (s + 1) == 0 ? static_cast<double>(kMuonA) : 0);
    }
    if (wide) {
      Multiply({q, s, 1}, as_is, rows, columns, s, next);
    } else {
      Multiply(as_is, {q, s, 1}, rows, columns, s, next);
    }
    std::copy(next, next + n, x);
  }
  const bool weight = call.attributes().Flag("weight");
  for (int64_t i = 0; i < n; ++i) {
    const double w = static_cast<double>(c.keep) * master[i] + static_cast<double>(c.minus_step) * x[i];
    call.Out(0).Store(i, w);
    if (weight) call.Out(2).Store(i, static_cast<double>(static_cast<float>(w)));
  }
  return OkStatus();
}

}  // namespace temper::reference
