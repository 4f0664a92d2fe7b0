#include "data/tokenizer/pre_tokenizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

// GPT-2's words: contractions; runs of letters, of digits, of other signs, each with the space before it; white space
// without the last space before a word.
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr size_t kMaxPreTokenizerSteps = 64;  // real files have at most four

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// At a border that is one of two spans, for every text: whether it stays one, whatever spans are joined.
bool Stays(Behavior behavior, bool left_matches, bool right_matches) {
  switch (behavior) {
    case Behavior::kRemoved:
    case Behavior::kIsolated:
      return true;
    case Behavior::kContiguous:
      return left_matches != right_matches;
    case Behavior::kMergedWithPrevious:
      return left_matches;
    case Behavior::kMergedWithNext:
      return right_matches;
  }
  return false;
}

// Joins the spans of a piece by the split's behavior, and passes the resulting pieces on.
class Cutter {
 public:
  Cutter(const Piece& piece, Behavior behavior, PieceVisitor visit)
      : piece_(piece), behavior_(behavior), visit_(visit) {}

  // The next span; together they cover the piece.
  Status Add(const Span& span) {
    if (held_ && Joins(span)) {
      held_->end = span.end;
      joined_ = true;
      return OkStatus();
    }
    TEMPER_RETURN_IF_ERROR(Finish());
    held_ = span;
    joined_ = false;
    return OkStatus();
  }
  // After the last span.
  Status Finish() {
    if (!held_) return OkStatus();
    const Span span = *std::exchange(held_, std::nullopt);
    if (span.end == span.begin || (behavior_ == Behavior::kRemoved && span.is_match)) return OkStatus();
    return visit_({piece_.text.substr(span.begin, span.end - span.begin), piece_.at_start && span.begin == 0});
  }

 private:
  bool Joins(const Span& span) const {
    switch (behavior_) {
      case Behavior::kRemoved:
      case Behavior::kIsolated:
        return false;
      case Behavior::kContiguous:
        return held_->is_match == span.is_match;
      case Behavior::kMergedWithPrevious:
        return !joined_ && !held_->is_match && span.is_match;
      case Behavior::kMergedWithNext:
        return !joined_ && held_->is_match && !span.is_match;
    }
    return false;
  }

  const Piece& piece_;
  const Behavior behavior_;
  const PieceVisitor visit_;
  std::optional<Span> held_;  // the next span may join it
  bool joined_ = false;       // has two spans already
};

// Visits single characters for which `is` holds, and the spans between them.
template <class Predicate>
Status CoverCharacters(std::string_view text, const Predicate& is, SpanVisitor visit) {
  size_t covered = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i + utf8::Length(text[i]);
    if (is(utf8::At(text, i))) {
      if (i > covered) TEMPER_RETURN_IF_ERROR(visit({covered, i, false}));
      TEMPER_RETURN_IF_ERROR(visit({i, end, true}));
      covered = end;
    }
    i = end;
  }
  return covered < text.size() ? visit({covered, text.size(), false}) : OkStatus();
}

// Counts a text that a step creates. Error: the steps create too much.
Status CountMade(PreTokenizerScratch& scratch, const std::string& text) {
  scratch.made += text.size();
  return scratch.made > scratch.limit ? TooLong(scratch.limit) : OkStatus();
}

class SplitPreTokenizer final : public PreTokenizer {
 public:
  SplitPreTokenizer(TextPattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status Cut(const Piece& piece, RegexScratch& regex, PreTokenizerScratch&, PieceVisitor visit) const override {
    Cutter cutter(piece, behavior_, visit);
    TEMPER_RETURN_IF_ERROR(pattern_.Cover(piece.text, regex, [&](const Span& span) {
      return cutter.Add({span.begin, span.end, span.is_match != invert_});
    }));
    return cutter.Finish();
  }
  bool Follow(TextBorder& border) const override {
    switch (pattern_.Find(border)) {
      case TextPattern::At::kUncertain:
        return false;
      case TextPattern::At::kOutside:  // the text between two matches, in whichever piece it ends up
        return true;
      case TextPattern::At::kMatchEnds:  // whether the next span is a match is not known
        border.cut = Stays(behavior_, !invert_, false) && Stays(behavior_, !invert_, true);
        return border.cut;
      case TextPattern::At::kMatchBegins:
        border.cut = Stays(behavior_, invert_, !invert_);
        return border.cut;
    }
    return false;
  }

 private:
  TextPattern pattern_;
  Behavior behavior_;
  bool invert_;
};

using Predicate = bool (*)(char32_t);

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(Predicate is, Behavior behavior) : is_(is), behavior_(behavior) {}
  Status Cut(const Piece& piece, RegexScratch&, PreTokenizerScratch&, PieceVisitor visit) const override {
    Cutter cutter(piece, behavior_, visit);
    TEMPER_RETURN_IF_ERROR(CoverCharacters(piece.text, is_, [&](const Span& span) { return cutter.Add(span); }));
    return cutter.Finish();
  }
  bool Follow(TextBorder& border) const override {
    const bool left = is_(utf8::At(border.left, 0)), right = is_(utf8::At(border.right, 0));
    if (!left && !right) return true;
    border.cut = Stays(behavior_, left, right);
    return border.cut;
  }

 private:
  Predicate is_;
  Behavior behavior_;
};

// "Whitespace": runs of word characters, and runs of other characters that are not spaces; spaces are dropped.
class Words final : public PreTokenizer {
 public:
  Status Cut(const Piece& piece, RegexScratch&, PreTokenizerScratch&, PieceVisitor visit) const override {
    const std::string_view text = piece.text;
    for (size_t begin = 0; begin < text.size();) {
      const Kind kind = KindAt(text, begin);
      size_t end = begin;
      while (end < text.size() && KindAt(text, end) == kind) end += utf8::Length(text[end]);
      if (kind != kSpace) {
        TEMPER_RETURN_IF_ERROR(visit({text.substr(begin, end - begin), piece.at_start && begin == 0}));
      }
      begin = end;
    }
    return OkStatus();
  }
  bool Follow(TextBorder& border) const override {
    border.cut = KindAt(border.left, 0) != KindAt(border.right, 0);
    return true;
  }

 private:
  enum Kind { kWord, kSpace, kOther };
  static Kind KindAt(std::string_view text, size_t i) {
    const char32_t c = utf8::At(text, i);
    return unicode::IsWord(c) ? kWord : unicode::IsSpace(c) ? kSpace : kOther;
  }
};

class ByteLevelPreTokenizer final : public PreTokenizer {
 public:
  ByteLevelPreTokenizer(bool add_prefix_space, std::optional<TextPattern> words, bool spell_out)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)), spell_out_(spell_out) {}

  Status Cut(const Piece& piece, RegexScratch& regex, PreTokenizerScratch& scratch, PieceVisitor visit) const override {
    std::string prefixed;
    Piece whole = piece;
    if (add_prefix_space_ && !piece.text.starts_with(' ')) {
      prefixed = std::string(" ").append(piece.text);
      TEMPER_RETURN_IF_ERROR(CountMade(scratch, prefixed));
      whole.text = prefixed;
    }
    if (!words_) return Spell(whole, scratch, visit);
    return words_->Cover(whole.text, regex, [&](const Span& span) {
      if (span.end == span.begin) return OkStatus();
      return Spell({whole.text.substr(span.begin, span.end - span.begin), whole.at_start && span.begin == 0}, scratch,
                   visit);
    });
  }
  bool Follow(TextBorder& border) const override {
    if (add_prefix_space_ && border.right != " ") return false;
    if (words_) {
      const TextPattern::At at = words_->Find(border);
      border.cut = at == TextPattern::At::kMatchEnds;
      if (!border.cut && at != TextPattern::At::kOutside) return false;
    }
    return !spell_out_ || border.Become(SpelledOut(border.left), SpelledOut(border.right));
  }

 private:
  Status Spell(const Piece& piece, PreTokenizerScratch& scratch, PieceVisitor visit) const {
    if (!spell_out_) return visit(piece);
    const std::string spelled = SpelledOut(piece.text);
    TEMPER_RETURN_IF_ERROR(CountMade(scratch, spelled));
    return visit({spelled, piece.at_start});
  }

  bool add_prefix_space_;
  std::optional<TextPattern> words_;
  bool spell_out_;
};

class MetaspacePreTokenizer final : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  MetaspacePreTokenizer(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  Status Cut(const Piece& piece, RegexScratch&, PreTokenizerScratch& scratch, PieceVisitor visit) const override {
    std::string text;
    text.reserve(piece.text.size() + piece.text.size() / 4 * replacement_.size());
    for (const char c : piece.text) {
      if (c == ' ') {
        text += replacement_;
      } else {
        text += c;
      }
    }
    const bool wanted = prepend_ == Prepend::kAlways || (prepend_ == Prepend::kFirst && piece.at_start);
    if (wanted && !text.starts_with(replacement_)) text.insert(0, replacement_);
    TEMPER_RETURN_IF_ERROR(CountMade(scratch, text));
    const Piece marked{text, piece.at_start};
    if (!split_) return visit(marked);
    const char32_t mark = utf8::At(replacement_, 0);
    Cutter cutter(marked, Behavior::kMergedWithNext, visit);
    TEMPER_RETURN_IF_ERROR(CoverCharacters(
        text, [&](char32_t c) { return c == mark; }, [&](const Span& span) { return cutter.Add(span); }));
    return cutter.Finish();
  }
  bool Follow(TextBorder& border) const override {
    if (border.right == " ") border.right = replacement_;
    if (prepend_ == Prepend::kAlways && border.right != replacement_) return false;
    if (!split_) return true;
    border.cut = border.right == replacement_;
    return border.left != replacement_;
  }

 private:
  std::string replacement_;  // one character
  Prepend prepend_;
  bool split_;
};

Result<Behavior> BehaviorFromJson(const Json& json, const char* fallback, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string name, StringOr(json, "behavior", fallback, where));
  if (name == "Removed") return Behavior::kRemoved;
  if (name == "Isolated") return Behavior::kIsolated;
  if (name == "MergedWithPrevious") return Behavior::kMergedWithPrevious;
  if (name == "MergedWithNext") return Behavior::kMergedWithNext;
  if (name == "Contiguous") return Behavior::kContiguous;
  return Corrupt(
      fmt::format("{}: '{}' is not a behavior of a split (Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                  "Contiguous)",
                  where, name));
}

Result<std::unique_ptr<PreTokenizer>> MakeMetaspace(const Json& json, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(std::string replacement, StringOr(json, "replacement", "\xE2\x96\x81", where));
  if (replacement.empty() || utf8::Length(replacement[0]) != replacement.size()) {
    return Corrupt(where + ": the replacement of Metaspace should be one character");
  }
  // Before 2024 there was only add_prefix_space.
  TEMPER_ASSIGN_OR_RETURN(const bool add, BoolOr(json, "add_prefix_space", true, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string scheme, StringOr(json, "prepend_scheme", add ? "always" : "never", where));
  TEMPER_ASSIGN_OR_RETURN(const bool split, BoolOr(json, "split", true, where));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return Corrupt(fmt::format("{}: '{}' is not a prepend_scheme (always, first, never)", where, scheme));
  }
  const auto prepend = scheme == "always"  ? MetaspacePreTokenizer::Prepend::kAlways
                       : scheme == "first" ? MetaspacePreTokenizer::Prepend::kFirst
                                           : MetaspacePreTokenizer::Prepend::kNever;
  return std::unique_ptr<PreTokenizer>(std::make_unique<MetaspacePreTokenizer>(std::move(replacement), prepend, split));
}

// The steps of nested Sequences, in order; BERT's is two.
Status Flatten(const Json& json, std::vector<const Json*>& steps, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "BertPreTokenizer") {
    static const Json spaces{{"type", "WhitespaceSplit"}}, punctuation{{"type", "Punctuation"}};
    TEMPER_RETURN_IF_ERROR(Flatten(spaces, steps, where));
    return Flatten(punctuation, steps, where);
  }
  if (type != "Sequence") {
    if (steps.size() == kMaxPreTokenizerSteps)
      return Corrupt(fmt::format("{}: more than {} pre-tokenizers", where, kMaxPreTokenizerSteps));
    steps.push_back(&json);
    return OkStatus();
  }
  const auto it = json.find("pretokenizers");
  if (it == json.end() || !it->is_array()) return Corrupt(where + ": a Sequence pre-tokenizer without 'pretokenizers'");
  for (const Json& step : *it) TEMPER_RETURN_IF_ERROR(Flatten(step, steps, where));
  return OkStatus();
}

Result<std::unique_ptr<PreTokenizer>> MakePreTokenizerStep(const Json& json, bool spell_out, const std::string& where) {
  using Made = std::unique_ptr<PreTokenizer>;
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "ByteLevel") {
    TEMPER_ASSIGN_OR_RETURN(const bool prefix, BoolOr(json, "add_prefix_space", true, where));
    TEMPER_ASSIGN_OR_RETURN(const bool use_regex, BoolOr(json, "use_regex", true, where));
    std::optional<TextPattern> words;
    if (use_regex) {
      TEMPER_ASSIGN_OR_RETURN(words, TextPattern::OfRegex(kGpt2Words, where));
    }
    return Made(std::make_unique<ByteLevelPreTokenizer>(prefix, std::move(words), spell_out));
  }
  if (type == "Split") {
    TEMPER_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(json, where));
    TEMPER_ASSIGN_OR_RETURN(const Behavior behavior, BehaviorFromJson(json, "", where));
    TEMPER_ASSIGN_OR_RETURN(const bool invert, BoolOr(json, "invert", false, where));
    return Made(std::make_unique<SplitPreTokenizer>(std::move(pattern), behavior, invert));
  }
  if (type == "Metaspace") return MakeMetaspace(json, where);
  if (type == "Digits") {
    TEMPER_ASSIGN_OR_RETURN(const bool individual, BoolOr(json, "individual_digits", false, where));
    return Made(
        std::make_unique<CharacterSplit>(unicode::IsNumeric, individual ? Behavior::kIsolated : Behavior::kContiguous));
  }
  if (type == "Punctuation") {
    TEMPER_ASSIGN_OR_RETURN(const Behavior behavior, BehaviorFromJson(json, "Isolated", where));
    return Made(std::make_unique<CharacterSplit>(unicode::IsPunctuation, behavior));
  }
  if (type == "WhitespaceSplit") return Made(std::make_unique<CharacterSplit>(unicode::IsSpace, Behavior::kRemoved));
  if (type == "Whitespace") return Made(std::make_unique<Words>());
  return Unsupported(
      fmt::format("{}: the pre-tokenizer '{}' is not supported (Sequence, ByteLevel, Split, Digits, Metaspace, "
                  "Punctuation, Whitespace, WhitespaceSplit, BertPreTokenizer are)",
                  where, type));
}

}  // namespace

Result<std::vector<std::unique_ptr<PreTokenizer>>> PreTokenizer::FromJson(const Json& json, bool* bytes_out,
                                                                          const std::string& where) {
  std::vector<std::unique_ptr<PreTokenizer>> made;
  if (bytes_out) *bytes_out = false;
  if (json.is_null()) return made;
  std::vector<const Json*> steps;
  TEMPER_RETURN_IF_ERROR(Flatten(json, steps, where));
  for (const Json* step : steps) {
    TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(*step, "type", "", where));
    const bool raw = bytes_out && step == steps.back() && type == "ByteLevel";
    if (raw) *bytes_out = true;
    TEMPER_ASSIGN_OR_RETURN(auto one, MakePreTokenizerStep(*step, /*spell_out=*/!raw, where));
    made.push_back(std::move(one));
  }
  return made;
}

bool FollowIntoWords(std::span<const std::unique_ptr<PreTokenizer>> steps, TextBorder& border) {
  return std::all_of(steps.begin(), steps.end(), [&](const auto& step) { return border.cut || step->Follow(border); });
}

Status CutIntoWords(std::span<const std::unique_ptr<PreTokenizer>> steps, const Piece& piece,
                    PreTokenizerScratch& scratch, PieceVisitor visit) {
  if (steps.empty()) return visit(piece);
  while (scratch.regex.size() < steps.size()) scratch.regex.emplace_back();
  return steps[0]->Cut(piece, scratch.regex[steps.size() - 1], scratch,
                       [&](const Piece& part) { return CutIntoWords(steps.subspan(1), part, scratch, visit); });
}

}  // namespace temper
