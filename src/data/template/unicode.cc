#include "data/template/unicode.h"

#include <algorithm>
#include <iterator>
#include <vector>

#include "base/utf8.h"

namespace temper::jinja {
namespace {

// Code points first, first + stride, ..., last map to themselves plus delta.
struct CaseRun {
  uint32_t first, last, stride;
  int32_t delta;
};
// A code point that maps to several.
struct CaseFull {
  uint32_t code_point;
  const char* mapped;
};

#include "data/template/unicode_tables.inc"

// Bounds of the ranges, ascending: a code point is inside if an odd number of bounds are at or below it.
class RangeSet {
 public:
  template <size_t n>
  explicit RangeSet(const uint32_t (&gaps_and_lengths)[n]) {
    uint32_t bound = 0;
    for (uint32_t step : gaps_and_lengths) bounds_.push_back(bound += step);
  }
  bool Has(char32_t c) const {
    return (std::upper_bound(bounds_.begin(), bounds_.end(), static_cast<uint32_t>(c)) - bounds_.begin()) % 2 == 1;
  }

 private:
  std::vector<uint32_t> bounds_;
};

class CaseMap {
 public:
  template <size_t n, size_t m>
  CaseMap(const CaseRun (&runs)[n], const CaseFull (&full)[m]) : full_(std::begin(full), std::end(full)) {
    for (const CaseRun& run : runs) {
      for (uint32_t c = run.first; c <= run.last; c += run.stride) simple_.push_back({c, c + run.delta});
    }
    std::sort(simple_.begin(), simple_.end());
  }
  void AppendMapped(std::string& out, char32_t c) const {
    const auto it = std::lower_bound(simple_.begin(), simple_.end(), std::pair<uint32_t, uint32_t>(c, 0));
    if (it != simple_.end() && it->first == c) return utf8::Append(out, it->second);
    const auto full = std::lower_bound(full_.begin(), full_.end(), static_cast<uint32_t>(c),
                                       [](const CaseFull& a, uint32_t b) { return a.code_point < b; });
    if (full != full_.end() && full->code_point == c) {
      out += full->mapped;
    } else {
      utf8::Append(out, c);
    }
  }

 private:
  std::vector<std::pair<uint32_t, uint32_t>> simple_;
  std::vector<CaseFull> full_;
};

const CaseMap& UpperMap() {
  static const CaseMap map(kToUpperRuns, kToUpperFull);
  return map;
}
const CaseMap& LowerMap() {
  static const CaseMap map(kToLowerRuns, kToLowerFull);
  return map;
}
const CaseMap& TitleMap() {
  static const CaseMap map(kToTitleRuns, kToTitleFull);
  return map;
}

#define TEMPER_RANGE_PREDICATE(function, table) \
  bool function(char32_t c) {                   \
    static const RangeSet set(table);           \
    return set.Has(c);                          \
  }
TEMPER_RANGE_PREDICATE(IsCased, kCased)
TEMPER_RANGE_PREDICATE(IsCaseIgnorable, kCaseIgnorable)

constexpr char32_t kCapitalSigma = 0x3a3, kSmallSigma = 0x3c3, kFinalSigma = 0x3c2;

// Lower case of text[at]; for a capital sigma it depends on whether a word ends there.
void AppendLower(std::string& out, const std::u32string& text, size_t at) {
  if (text[at] != kCapitalSigma) return LowerMap().AppendMapped(out, text[at]);
  size_t before = at;
  while (before > 0 && IsCaseIgnorable(text[before - 1])) --before;
  size_t after = at + 1;
  while (after < text.size() && IsCaseIgnorable(text[after])) ++after;
  const bool ends_word = before > 0 && IsCased(text[before - 1]) && !(after < text.size() && IsCased(text[after]));
  utf8::Append(out, ends_word ? kFinalSigma : kSmallSigma);
}

}  // namespace

TEMPER_RANGE_PREDICATE(IsSpace, kSpace)
TEMPER_RANGE_PREDICATE(IsAlpha, kAlpha)
TEMPER_RANGE_PREDICATE(IsDecimal, kDecimal)
TEMPER_RANGE_PREDICATE(IsDigit, kDigit)
TEMPER_RANGE_PREDICATE(IsNumeric, kNumeric)
TEMPER_RANGE_PREDICATE(IsPrintable, kPrintable)
TEMPER_RANGE_PREDICATE(IsUpper, kUpper)
TEMPER_RANGE_PREDICATE(IsLower, kLower)
TEMPER_RANGE_PREDICATE(IsTitle, kTitleCase)
#undef TEMPER_RANGE_PREDICATE

bool IsAlnum(char32_t c) {
  return IsAlpha(c) || IsDecimal(c) || IsDigit(c) || IsNumeric(c);
}

char32_t NextCodePoint(std::string_view text, size_t& position) {
  const size_t length = utf8::LengthAt(text, position);
  const char32_t c = length == 0 ? 0xfffd : utf8::At(text, position);
  position += length == 0 ? 1 : length;
  return c;
}

std::u32string ToCodePoints(std::string_view text) {
  std::u32string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) out += NextCodePoint(text, at);
  return out;
}

int64_t CountCodePoints(std::string_view text) {
  return std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xc0) != 0x80; });
}

size_t ByteOffset(std::string_view text, int64_t index) {
  for (size_t at = 0; at < text.size(); ++at) {
    if ((text[at] & 0xc0) != 0x80 && index-- == 0) return at;
  }
  return text.size();
}

std::string Upper(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (size_t at = 0; at < text.size();) UpperMap().AppendMapped(out, NextCodePoint(text, at));
  return out;
}

std::string Lower(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  if (utf8::IsAscii(text)) {
    for (char c : text) out += c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
    return out;
  }
  const std::u32string points = ToCodePoints(text);
  for (size_t i = 0; i < points.size(); ++i) AppendLower(out, points, i);
  return out;
}

std::string Capitalize(std::string_view text) {
  const std::u32string points = ToCodePoints(text);
  std::string out;
  for (size_t i = 0; i < points.size(); ++i) {
    if (i == 0) {
      TitleMap().AppendMapped(out, points[0]);
    } else {
      AppendLower(out, points, i);
    }
  }
  return out;
}

std::string TitleCase(std::string_view text) {
  const std::u32string points = ToCodePoints(text);
  std::string out;
  bool in_word = false;
  for (size_t i = 0; i < points.size(); ++i) {
    if (in_word) {
      AppendLower(out, points, i);
    } else {
      TitleMap().AppendMapped(out, points[i]);
    }
    in_word = IsCased(points[i]);
  }
  return out;
}

std::string_view Strip(std::string_view text, const std::string_view* chars, bool left, bool right) {
  const std::u32string set = chars ? ToCodePoints(*chars) : std::u32string();
  const auto drops = [&](char32_t c) { return chars ? set.find(c) != set.npos : IsSpace(c); };
  while (left && !text.empty()) {
    size_t at = 0;
    if (!drops(NextCodePoint(text, at))) break;
    text.remove_prefix(at);
  }
  while (right && !text.empty()) {
    size_t start = text.size() - 1;
    while (start > 0 && text.size() - start < 4 && (text[start] & 0xc0) == 0x80) --start;
    size_t at = start;
    if (!drops(NextCodePoint(text, at))) break;
    text.remove_suffix(text.size() - start);
  }
  return text;
}

}  // namespace temper::jinja
