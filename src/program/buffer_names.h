// Names of the buffers that training adds to a model's own. Those of trained values are part of the checkpoint format,
// as are the names of an optimizer's states, which its rule gives (graph/update_rule.h).
#pragma once

#include <string>

namespace temper {

inline std::string GradientName(const std::string& weight) {
  return "grad:" + weight;
}  // f32
inline std::string MasterName(const std::string& weight) {
  return "master:" + weight;
}  // f32 copy of a trainable bf16 value
inline std::string ColumnPairsName(const std::string& weight) {
  return "column_pairs:" + weight;
}  // a trained weight, packed once per step
inline std::string RowPairsName(const std::string& weight) {
  return "row_pairs:" + weight;
}  // the same for the backward; second layout of a packed frozen weight

inline constexpr char kScalarsBuffer[] = "scalars";  // f64[kNumScalars], written before each step
inline constexpr char kClipBuffer[] = "clip";        // f32[2]: {factor, gradient norm}, read after each step

}  // namespace temper
