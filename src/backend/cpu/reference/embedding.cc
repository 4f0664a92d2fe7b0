// Token embedding: y[t] = table[index[t] + offset] (OPT's position table starts at offset 2), and its gradient.
#include "backend/cpu/embedding_rows.h"
#include "backend/cpu/reference/call.h"

namespace temper::reference {

Status Embedding(const Call& call) {
  const Operand table_VD = call.In(0), index_T = call.In(1), y_TD = call.Out(0);
  const int64_t D = table_VD.columns(), V = table_VD.rows();
  for (int64_t t = 0; t < index_T.elements(); ++t) {
    const int64_t row = index_T.Int(t) + call.attributes().IntOr("offset", 0);
    if (row < 0 || row >= V) return OutsideOfTable(row, t, V);
    for (int64_t d = 0; d < D; ++d) y_TD.Store(t * D + d, table_VD[row * D + d]);
  }
  return OkStatus();
}

Status EmbeddingBackward(const Call& call) {
  const Operand d_x_TD = call.In(0), index_T = call.In(1), d_table_VD = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const int64_t D = d_x_TD.columns(), V = d_table_VD.rows(), T = index_T.elements();
  const int64_t offset = call.attributes().IntOr("offset", 0);
  for (int64_t t = 0; t < T; ++t) {
    const int64_t row = index_T.Int(t) + offset;
    if (row < 0 || row >= V) return OutsideOfTable(row, t, V);
  }
  double* sum_V = call.Scratch(V);
  for (int64_t d = 0; d < D; ++d) {
    for (int64_t v = 0; v < V; ++v) sum_V[v] = acc ? call.In(2)[v * D + d] : 0;
    for (int64_t t = 0; t < T; ++t) sum_V[index_T.Int(t) + offset] += d_x_TD[t * D + d];
    for (int64_t v = 0; v < V; ++v) d_table_VD.Store(v * D + d, sum_V[v]);
  }
  return OkStatus();
}

}  // namespace temper::reference
