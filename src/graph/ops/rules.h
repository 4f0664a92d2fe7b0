// The rules that graph/ops/*.cc define, one file per op with its backward, and shared code to write them.
#pragma once

#include "graph/named_ops.h"
#include "graph/ops/operand_types.h"
#include "graph/rule.h"

namespace temper {

#define TEMPER_OP(name, text, by) extern const OpRule k##name##Rule;
#include "graph/op_list.inc"

inline constexpr AttributeSpec Flag(const char* key) {
  return {key, AttributeSpec::Kind::kFlag};
}
inline constexpr AttributeSpec OptionalSize(const char* key) {
  return {key, AttributeSpec::Kind::kSize};
}
inline constexpr AttributeSpec Size(const char* key) {
  return {key, AttributeSpec::Kind::kSize, true};
}
inline constexpr AttributeSpec OptionalDouble(const char* key) {
  return {key, AttributeSpec::Kind::kDouble};
}
inline constexpr AttributeSpec Double(const char* key) {
  return {key, AttributeSpec::Kind::kDouble, true};
}
inline constexpr AttributeSpec OptionalString(const char* key) {
  return {key, AttributeSpec::Kind::kString};
}
inline constexpr AttributeSpec String(const char* key) {
  return {key, AttributeSpec::Kind::kString, true};
}
inline constexpr AttributeSpec Doubles(const char* key) {
  return {key, AttributeSpec::Kind::kDoubles, true};
}

}  // namespace temper
