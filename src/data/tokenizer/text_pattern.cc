#include "data/tokenizer/text_pattern.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/regex_border.h"

namespace temper {

Status TooLong(size_t limit) {
  return Unsupported(
      fmt::format("a step of tokenizer.json makes the text longer than {} bytes: the file is broken", limit));
}

Result<TextPattern> TextPattern::FromJson(const Json& json, const std::string& where) {
  const auto it = json.find("pattern");
  if (it != json.end() && it->is_object()) {
    TEMPER_ASSIGN_OR_RETURN(const std::string regex, StringOr(*it, "Regex", "", where));
    if (it->contains("Regex")) return OfRegex(regex, where);
    if (it->contains("String")) {
      TextPattern pattern;
      TEMPER_ASSIGN_OR_RETURN(pattern.literal_, StringOr(*it, "String", "", where));
      return pattern;
    }
  }
  return Corrupt(fmt::format("{}: a pattern should be {{\"String\": ...}} or {{\"Regex\": ...}}", where));
}

Result<TextPattern> TextPattern::OfRegex(std::string_view regex, const std::string& where) {
  TextPattern pattern;
  TEMPER_ASSIGN_OR_RETURN(pattern.regex_, Regex::Compile(regex, where));
  return pattern;
}

Status TextPattern::Cover(std::string_view text, RegexScratch& scratch, SpanVisitor visit) const {
  if (regex_) return regex_->Cover(text, scratch, visit);
  size_t covered = 0;
  while (!literal_.empty()) {
    const size_t at = text.find(literal_, covered);
    if (at == text.npos) break;
    if (at > covered) TEMPER_RETURN_IF_ERROR(visit({covered, at, false}));
    covered = at + literal_.size();
    TEMPER_RETURN_IF_ERROR(visit({at, covered, true}));
  }
  return covered < text.size() ? visit({covered, text.size(), false}) : OkStatus();
}

TextPattern::At TextPattern::Find(const TextBorder& border) const {
  if (regex_) {
    switch (BorderOf(regex_->pattern(), border.left, border.right)) {
      case RegexBorder::kUncertain:
        return At::kUncertain;
      case RegexBorder::kOutside:
        return At::kOutside;
      case RegexBorder::kMatchEnds:
        return At::kMatchEnds;
    }
  }
  if (literal_.empty()) return At::kOutside;
  if (border.MayEndOrCross(literal_)) return At::kUncertain;
  if (!literal_.starts_with(border.right)) return At::kOutside;
  return literal_ == border.right ? At::kMatchBegins : At::kUncertain;
}

Status TextPattern::ReplaceAll(std::string& text, std::string_view content, size_t limit, RegexScratch& scratch) const {
  std::string out;
  bool changed = false;
  TEMPER_RETURN_IF_ERROR(Cover(text, scratch, [&](const Span& span) {
    if (!changed && !span.is_match && span.begin == 0 && span.end == text.size()) return OkStatus();
    if (!changed) out.reserve(text.size());
    changed = true;
    if (out.size() + content.size() > limit) return TooLong(limit);
    if (span.is_match) {
      out += content;
    } else {
      out.append(text, span.begin, span.end - span.begin);
    }
    return OkStatus();
  }));
  if (changed) text = std::move(out);
  return OkStatus();
}

}  // namespace temper
