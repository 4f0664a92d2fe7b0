// Token embedding: y[t] = table[index[t] + offset] (OPT's position table starts at offset 2), zero where the table is
// a part that has not that row; and its gradient.
#include "backend/cpu/pointwise/embedding_rows.h"
#include "backend/cpu/reference/call.h"

namespace temper::reference {
namespace {

Status Check(const EmbeddingRows& rows, const Operand& index_T) {
  return rows.Check(reinterpret_cast<const int32_t*>(index_T.data()), index_T.elements());
}

}  // namespace

Status Embedding(const Call& call) {
  const Operand table_VD = call.In(0), index_T = call.In(1), y_TD = call.Out(0);
  const int64_t D = table_VD.columns();
  const EmbeddingRows rows(call.attributes(), table_VD.type().shape[0]);
  TEMPER_RETURN_IF_ERROR(Check(rows, index_T));
  for (int64_t t = 0; t < index_T.elements(); ++t) {
    const int64_t row = rows.Find(index_T.Int(t));
    for (int64_t d = 0; d < D; ++d) y_TD.Store(t * D + d, row < 0 ? 0 : table_VD[row * D + d]);
  }
  return OkStatus();
}

Status EmbeddingBackward(const Call& call) {
  const Operand d_x_TD = call.In(0), index_T = call.In(1), d_table_VD = call.Out(0);
  const bool acc = call.attributes().Flag("acc");
  const int64_t D = d_x_TD.columns(), V = d_table_VD.type().shape[0], T = index_T.elements();
  const EmbeddingRows rows(call.attributes(), V);
  TEMPER_RETURN_IF_ERROR(Check(rows, index_T));
  double* sum_V = call.Scratch(V);
  for (int64_t d = 0; d < D; ++d) {
    for (int64_t v = 0; v < V; ++v) sum_V[v] = acc ? call.In(2)[v * D + d] : 0;
    for (int64_t t = 0; t < T; ++t) {
      if (const int64_t row = rows.Find(index_T.Int(t)); row >= 0) sum_V[row] += d_x_TD[t * D + d];
    }
    for (int64_t v = 0; v < V; ++v) d_table_VD.Store(v * D + d, sum_V[v]);
  }
  return OkStatus();
}

}  // namespace temper::reference
