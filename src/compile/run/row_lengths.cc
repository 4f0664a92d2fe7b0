#include "compile/run/row_lengths.h"

#include <fmt/core.h>

namespace temper {

std::vector<int64_t> ShorterRows(int64_t max_seq_len) {
  constexpr int64_t kUnit = 32;  // tokens that matrix units take at a time
  std::vector<int64_t> rows;
  for (int k = 1; k < kMostRowLengths; ++k) {
    const int64_t part = int64_t{1} << k;
    const int64_t row = ((max_seq_len + part - 1) / part + kUnit - 1) / kUnit * kUnit;
    if (row < kLeastRow || row >= (rows.empty() ? max_seq_len : rows.back())) break;
    rows.push_back(row);
  }
  return rows;
}

RowLengths RowLengthsOf(const ModelFacts& facts, const RunConfig& config, const Mesh& mesh) {
  RowLengths lengths;
  const std::vector<int64_t> shorter = ShorterRows(*config.data.max_seq_len);
  if (config.data.packing || shorter.empty()) return lengths;
  // Ranks that have whole rows know which of all is the longest. What they exchange in the background goes over from
  // one micro-batch of a step to the next, of an evaluation it does not.
  const bool whole = AxisSet{Axis::kDp, Axis::kFsdp}.HasAll(mesh.axes());
  constexpr char kOfRanks[] = "what several ranks exchange is planned over a whole step";
  if (!whole) lengths.why_not = kOfRanks;
  if (config.machine.device == DeviceChoice::kGpu) lengths.why_not = "on a GPU a step is one recorded schedule";
  if (facts.experts > 0) lengths.why_not = "what a step says of its experts comes from one Program";
  if (!lengths.why_not.empty()) return lengths;
  lengths.eval = shorter;
  if (mesh.ranks() > 1) {
    lengths.why_not = kOfRanks;
    return lengths;
  }
  const bool draws = config.lora.dropout > 0 || config.regularisation.neftune_noise_alpha > 0;
  if (draws && config.batch.per_device_train_batch_size > 1) {
    const RunConfig::Batch& batch = config.batch;
    lengths.why_not = fmt::format(
        "dropout and noise are drawn by a token's place in rows of max_seq_len; per_device_train_batch_size: 1 with "
        "gradient_accumulation_steps: {} has the same steps in shorter rows",
        batch.per_device_train_batch_size * batch.gradient_accumulation_steps);
    return lengths;
  }
  lengths.train = shorter;
  return lengths;
}

}  // namespace temper
