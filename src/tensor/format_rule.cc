#include "tensor/format_rule.h"

#include <algorithm>
#include <bit>
#include <string>

namespace temper {

#define TEMPER_FORMAT(name) extern const FormatRule k##name##Format;
#include "tensor/format_list.inc"
#undef TEMPER_FORMAT

std::span<const FormatRule* const> FormatRules() {
  static constexpr const FormatRule* kRules[] = {
#define TEMPER_FORMAT(name) &k##name##Format,
#include "tensor/format_list.inc"
#undef TEMPER_FORMAT
  };
  return kRules;
}

// A quantised format is a number, of which the first in the list is int8's.
constexpr uint8_t kFirst = std::bit_cast<uint8_t>(ElementFormat::Int8Rows());

int FormatIndex(ElementFormat format) {
  TEMPER_CHECK(format.quantised()) << ToString(format) << " is not quantised";
  return std::bit_cast<uint8_t>(format) - kFirst;
}

const FormatRule& RuleOf(ElementFormat format) {
  return *FormatRules()[static_cast<size_t>(FormatIndex(format))];
}

bool TrainsInFull(ElementFormat format) {
  const StoredFormat* const stored = RuleOf(format).stored;
  return stored != nullptr && stored->trains_in_full;
}

ElementFormat FormatWith(const FormatRule& rule) {
  const auto rules = FormatRules();
  const auto at = std::find(rules.begin(), rules.end(), &rule);
  TEMPER_CHECK(at != rules.end()) << rule.name << " is not in format_list.inc";
  return std::bit_cast<ElementFormat>(static_cast<uint8_t>(kFirst + (at - rules.begin())));
}

// What element_format.h declares: a rule answers for a quantised format.

int64_t ElementFormat::RowBytes(int64_t columns) const {
  return quantised() ? RuleOf(*this).row_bytes(columns) : columns * SizeOf(dtype());
}

bf16 ElementFormat::Number(const std::byte* row, int64_t columns, int64_t column) const {
  bf16 number;
  RuleOf(*this).numbers(row, columns, column, column + 1, &number);
  return number;
}

std::string_view ToString(ElementFormat f) {
  return f.quantised() ? RuleOf(f).name : ToString(f.dtype());
}

Result<ElementFormat> ParseElementFormat(std::string_view text) {
  for (const FormatRule* rule : FormatRules()) {
    if (text == rule->name) return FormatWith(*rule);
  }
  TEMPER_ASSIGN_OR_RETURN(const DType dtype, ParseDType(text));
  return ElementFormat(dtype);
}

}  // namespace temper
