// Names of the buffers that training adds to a model's own. They are part of the checkpoint format.
#pragma once

#include <string>

namespace temper {

inline std::string GradientName(const std::string& weight) {
  return "grad:" + weight;
}  // f32
inline std::string MasterName(const std::string& weight) {
  return "master:" + weight;
}  // f32 copy of a trainable bf16 value
inline std::string AdamMName(const std::string& weight) {
  return "adam_m:" + weight;
}  // f32, first moment
inline std::string AdamVName(const std::string& weight) {
  return "adam_v:" + weight;
}  // f32, second moment

inline constexpr char kScalarsBuffer[] = "scalars";  // f64[kNumScalars], written before each step
inline constexpr char kClipBuffer[] = "clip";        // f32[2]: {factor, gradient norm}, read after each step

}  // namespace temper
