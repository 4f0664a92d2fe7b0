// Adafactor in double: states rounded to f32 as they are stored.
#include <cmath>

#include "backend/cpu/pointwise/adafactor_step.h"
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Adafactor(const Call& call) {
  const Operand master = call.In(0), gradient = call.In(1);
  const bool factored = call.attributes().Flag("factored");
  const int other = factored ? 4 : 3;
  const AdafactorScalars s = PrepareAdafactor(call.attributes(), reinterpret_cast<const float*>(call.In(other).data()),
                                              reinterpret_cast<const double*>(call.In(other + 1).data()));
  const Shape& shape = master.type().shape;
  const int64_t n = shape.elements(), columns = shape.columns(), rows = factored ? shape[-2] : 1;
  if (n == 0) return OkStatus();
  const int64_t matrices = n / (rows * columns);
  const auto next = [&](const Operand& mean, int64_t i, double square) {
    return double{s.beta2} * mean[i] + double{s.one_minus_beta2} * (square + s.eps);
  };
  const auto g = [&](int64_t i) { return double{s.clip} * gradient[i]; };
  double *const u = call.Scratch(n + rows + columns), *const of_row = u + n, *const of_column = of_row + rows;
  double squares_of_u = 0, squares_of_w = 0;
  for (int64_t matrix = 0; matrix < matrices; ++matrix) {
    const int64_t at = matrix * rows * columns;
    for (int64_t r = 0; r < rows; ++r) of_row[r] = 0;
    for (int64_t c = 0; c < columns; ++c) of_column[c] = 0;
    for (int64_t i = 0; i < rows * columns; ++i) {
      of_row[i / columns] += g(at + i) * g(at + i) / static_cast<double>(columns);
      of_column[i % columns] += g(at + i) * g(at + i) / static_cast<double>(rows);
    }
    double mean = 0;
    for (int64_t r = 0; factored && r < rows; ++r) {
      of_row[r] = next(call.In(2), matrix * rows + r, of_row[r]);
      call.Out(1).Store(matrix * rows + r, of_row[r]);
      mean += of_row[r] / static_cast<double>(rows);
    }
    for (int64_t c = 0; c < columns; ++c) {
      of_column[c] = next(call.In(factored ? 3 : 2), matrix * columns + c, of_column[c]);
      call.Out(factored ? 2 : 1).Store(matrix * columns + c, of_column[c]);
    }
    for (int64_t i = 0; i < rows * columns; ++i) {
      u[at + i] =
          g(at + i) * (factored ? std::sqrt(mean / of_row[i / columns]) : 1) / std::sqrt(of_column[i % columns]);
      squares_of_u += u[at + i] * u[at + i];
      squares_of_w += master[at + i] * master[at + i];
    }
  }
  const AdafactorFactors factors = AdafactorFactorsOf(s, n, squares_of_u, squares_of_w);
  for (int64_t i = 0; i < n; ++i) {
    const double w = factors.keep * master[i] + factors.minus_step * u[i];
    call.Out(0).Store(i, w);
    if (call.attributes().Flag("weight")) {
      call.Out(factored ? 3 : 2).Store(i, static_cast<double>(static_cast<float>(w)));
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
