#include "compile/run/row_lengths.h"

#include <numeric>

#include "graph/rule.h"

namespace temper {

std::vector<int64_t> ShorterRows(int64_t max_seq_len, int64_t unit) {
  constexpr int64_t kTokensAtATime = 32;  // of matrix units
  const int64_t multiple = std::lcm(kTokensAtATime, unit);
  std::vector<int64_t> rows;
  for (int k = 1; k < kMostRowLengths; ++k) {
    const int64_t part = int64_t{1} << k;
    const int64_t row = ((max_seq_len + part - 1) / part + multiple - 1) / multiple * multiple;
    if (row < kLeastRow || row >= (rows.empty() ? max_seq_len : rows.back())) break;
    rows.push_back(row);
  }
  return rows;
}

RowLengths RowLengthsOf(const RunConfig& config, const Mesh& mesh) {
  RowLengths lengths;
  if (config.data.packing || config.data.pad_to_max_seq_len) return lengths;
  // Ranks of cp have two chunks of each row, those of tp may share its tokens.
  const int64_t sharers = int64_t{2} * mesh.size(Axis::kCp) * mesh.size(mesh.axes() & kTensorAxes);
  lengths.train = lengths.eval = ShorterRows(*config.data.max_seq_len, sharers);
  lengths.per_step = mesh.size(Axis::kPp) > 1 || config.machine.device == DeviceChoice::kGpu;
  return lengths;
}

void DrawAsInLongerRows(int64_t length, int64_t longest, Graph* graph) {
  for (Node& node : graph->nodes()) {
    if (!RuleOf(node.op).random) continue;
    node.attributes.Set("packed_row", length);
    node.attributes.Set("drawn_row", longest);
  }
}

}  // namespace temper
