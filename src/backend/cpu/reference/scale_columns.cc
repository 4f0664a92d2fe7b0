// Columns times m / sqrt(q), and the gradients, in which q is a constant. Where q is not positive, the factor is 0.
#include <cmath>

#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

double Reciprocal(const Operand& q_O, int64_t o) {
  return q_O[o] > 0 ? 1 / std::sqrt(q_O[o]) : 0;
}

}  // namespace

Status ScaleColumns(const Call& call) {
  const Operand x_TO = call.In(0), m_O = call.In(1), q_O = call.In(2), y_TO = call.Out(0);
  const double less = call.attributes().Flag("minus_one") ? 1 : 0;
  const int64_t O = x_TO.columns();
  for (int64_t i = 0; i < x_TO.elements(); ++i) {
    y_TO.Store(i, (m_O[i % O] * Reciprocal(q_O, i % O) - less) * x_TO[i]);
  }
  return OkStatus();
}

Status ScaleColumnsBackward(const Call& call) {
  const Operand d_y_TO = call.In(0), x_TO = call.In(1), m_O = call.In(2), q_O = call.In(3), d_x_TO = call.Out(0);
  const double less = call.attributes().Flag("minus_one") ? 1 : 0;
  const bool acc = call.attributes().Flag("acc");
  const int64_t T = x_TO.rows(), O = x_TO.columns();
  // First d_m, which reads what d_x may overwrite.
  for (int64_t o = 0; o < O; ++o) {
    double sum = 0;
    for (int64_t i = o; i < T * O; i += O) sum += d_y_TO[i] * x_TO[i];
    call.Out(1).Store(o, sum * Reciprocal(q_O, o) + (acc ? call.In(4)[o] : 0));
  }
  for (int64_t i = 0; i < T * O; ++i) {
    d_x_TO.Store(i, (m_O[i % O] * Reciprocal(q_O, i % O) - less) * d_y_TO[i]);
  }
  return OkStatus();
}

}  // namespace temper::reference
