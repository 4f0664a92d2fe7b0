// Rows of tokens at the places of their experts, and their weighted sums.
#include "backend/cpu/reference/call.h"
#include "graph/ops/routed_rows.h"

namespace temper::reference {
namespace {

Status CheckPlacesOf(const Operand& place_TA, int64_t P) {
  return CheckPlaces(reinterpret_cast<const int32_t*>(place_TA.data()), place_TA.elements(), P);
}

}  // namespace

Status GatherRows(const Call& call) {
  const Operand x_TD = call.In(0), place_TA = call.In(1), x_PD = call.Out(0);
  const int64_t D = x_TD.columns(), A = place_TA.columns();
  TEMPER_RETURN_IF_ERROR(CheckPlacesOf(place_TA, x_PD.rows()));
  for (int64_t i = 0; i < place_TA.elements(); ++i) {
    for (int64_t d = 0; d < D; ++d) x_PD.Store(place_TA.Int(i) * D + d, x_TD[i / A * D + d]);
  }
  return OkStatus();
}

Status Combine(const Call& call) {
  const Operand y_PD = call.In(0), place_TA = call.In(1), y_TD = call.Out(0);
  const int64_t D = y_PD.columns(), A = place_TA.columns();
  const bool weighted = call.attributes().Flag("weighted"), acc = call.attributes().Flag("acc");
  TEMPER_RETURN_IF_ERROR(CheckPlacesOf(place_TA, y_PD.rows()));
  for (int64_t t = 0; t < y_TD.rows(); ++t) {
    for (int64_t d = 0; d < D; ++d) {
      double sum = 0;
      for (int64_t a = 0; a < A; ++a) {
        sum += (weighted ? call.In(2)[t * A + a] : 1) * y_PD[place_TA.Int(t * A + a) * D + d];
      }
      y_TD.Store(t * D + d, sum + (acc ? call.In(2 + weighted)[t * D + d] : 0));
    }
  }
  return OkStatus();
}

Status CombineBackward(const Call& call) {
  const Operand d_y_TD = call.In(0), y_PD = call.In(1), place_TA = call.In(2), weight_TA = call.In(3),
                d_y_PD = call.Out(0), d_weight_TA = call.Out(1);
  const int64_t D = y_PD.columns(), A = place_TA.columns();
  TEMPER_RETURN_IF_ERROR(CheckPlacesOf(place_TA, y_PD.rows()));
  for (int64_t i = 0; i < place_TA.elements(); ++i) {
    const int64_t t = i / A, p = place_TA.Int(i);
    d_weight_TA.Store(i, Dot(d_y_TD, t * D, y_PD, p * D, D));
    for (int64_t d = 0; d < D; ++d) d_y_PD.Store(p * D + d, weight_TA[i] * d_y_TD[t * D + d]);
  }
  return OkStatus();
}

}  // namespace temper::reference
