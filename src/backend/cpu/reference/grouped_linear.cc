// Products of rows with the matrices of their experts, stacked [experts, out, in]; and both gradients.
#include "backend/cpu/reference/call.h"
#include "graph/ops/routed_rows.h"

namespace temper::reference {
namespace {

// Of `count` experts of this rank.
Status CheckExperts(const Call& call, int64_t count) {
  const Operand expert_P = call.In(2);
  const int64_t experts = call.attributes().IntOr("whole", count);
  std::vector<int32_t> first(static_cast<size_t>(experts) + 1);
  return FindExpertRows(reinterpret_cast<const int32_t*>(expert_P.data()), expert_P.elements(), experts,
                        expert_P.elements() / call.attributes().Int("active"), first.data());
}

}  // namespace

Status GroupedLinear(const Call& call) {
  const Operand x_PI = call.In(0), w_EOI = call.In(1), expert_P = call.In(2), y_PO = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t I = x_PI.columns(), O = y_PO.columns();
  TEMPER_RETURN_IF_ERROR(CheckExperts(call, w_EOI.type().shape[0]));
  const int64_t first = call.attributes().IntOr("begin", 0), count = w_EOI.type().shape[0];
  for (int64_t p = 0; p < x_PI.rows(); ++p) {
    const int64_t e = expert_P.Int(p) - first;
    for (int64_t o = 0; o < O; ++o) {
      if (e < 0 || e >= count) {
        y_PO.Store(p * O + o, 0);
        continue;
      }
      const double dot = Dot(x_PI, p * I, w_EOI, (e * O + o) * I, I);
      y_PO.Store(p * O + o, scale * dot + (acc ? call.In(3)[p * O + o] : 0));
    }
  }
  return OkStatus();
}

Status GroupedLinearDx(const Call& call) {
  const Operand d_y_PO = call.In(0), w_EOI = call.In(1), expert_P = call.In(2), d_x_PI = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t O = d_y_PO.columns(), I = d_x_PI.columns();
  TEMPER_RETURN_IF_ERROR(CheckExperts(call, w_EOI.type().shape[0]));
  const int64_t first = call.attributes().IntOr("begin", 0), count = w_EOI.type().shape[0];
  for (int64_t p = 0; p < d_y_PO.rows(); ++p) {
    const int64_t e = expert_P.Int(p) - first;
    for (int64_t i = 0; i < I; ++i) {
      if (e < 0 || e >= count) {
        d_x_PI.Store(p * I + i, 0);
        continue;
      }
      double dot = 0;
      for (int64_t o = 0; o < O; ++o) dot += d_y_PO[p * O + o] * w_EOI[(e * O + o) * I + i];
      d_x_PI.Store(p * I + i, scale * dot + (acc ? call.In(3)[p * I + i] : 0));
    }
  }
  return OkStatus();
}

Status GroupedLinearDw(const Call& call) {
  const Operand d_y_PO = call.In(0), x_PI = call.In(1), expert_P = call.In(2), d_w_EOI = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const double scale = call.attributes().DoubleOr("scale", 1);
  const int64_t O = d_y_PO.columns(), I = x_PI.columns(), P = x_PI.rows(), E = d_w_EOI.type().shape[0];
  TEMPER_RETURN_IF_ERROR(CheckExperts(call, E));
  const int64_t first = call.attributes().IntOr("begin", 0);
  double* const sum_I = call.Scratch(I);
  for (int64_t e = 0; e < E; ++e) {
    for (int64_t o = 0; o < O; ++o) {
      std::fill_n(sum_I, I, 0.0);
      for (int64_t p = 0; p < P; ++p) {
        if (expert_P.Int(p) != first + e) continue;
        for (int64_t i = 0; i < I; ++i) sum_I[i] += d_y_PO[p * O + o] * x_PI[p * I + i];
      }
      for (int64_t i = 0, at = (e * O + o) * I; i < I; ++i, ++at) {
        d_w_EOI.Store(at, scale * sum_I[i] + (acc ? call.In(3)[at] : 0));
      }
    }
  }
  return OkStatus();
}

}  // namespace temper::reference
