#include "data/tokenizer/pre_tokenizer.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

// GPT-2's words: contractions; runs of letters, of digits, of other signs, each with the space before it; white space
// but for the last space before a word.
constexpr std::string_view kGpt2Words = R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
constexpr size_t kMaxSteps = 64;  // real files have at most four

enum class Behavior { kRemoved, kIsolated, kMergedWithPrevious, kMergedWithNext, kContiguous };

// Appends `piece` cut at `spans` (which cover it) to `out`.
void Cut(const Piece& piece, const std::vector<Span>& spans, Behavior behavior, std::vector<Piece>& out) {
  const auto emit = [&](size_t begin, size_t end) {
    if (end > begin) out.push_back({piece.text.substr(begin, end - begin), piece.at_start && begin == 0});
  };
  const size_t n = spans.size();
  for (size_t i = 0; i < n;) {
    size_t last = i;  // spans i..last are one piece
    switch (behavior) {
      case Behavior::kRemoved:
      case Behavior::kIsolated:
        break;
      case Behavior::kContiguous:
        while (last + 1 < n && spans[last + 1].is_match == spans[last].is_match) ++last;
        break;
      case Behavior::kMergedWithPrevious:
        if (!spans[i].is_match && i + 1 < n && spans[i + 1].is_match) ++last;
        break;
      case Behavior::kMergedWithNext:
        if (spans[i].is_match && i + 1 < n && !spans[i + 1].is_match) ++last;
        break;
    }
    if (behavior != Behavior::kRemoved || !spans[i].is_match) emit(spans[i].begin, spans[last].end);
    i = last + 1;
  }
}

// Cuts every piece; Derived::Cover fills scratch.spans.
template <class CoverFunction>
Status CutAll(PreTokenizerScratch& scratch, Behavior behavior, const CoverFunction& cover) {
  scratch.next.clear();
  for (const Piece& piece : scratch.pieces) {
    TEMPER_RETURN_IF_ERROR(cover(piece.text, scratch.spans));
    Cut(piece, scratch.spans, behavior, scratch.next);
  }
  scratch.pieces.swap(scratch.next);
  return OkStatus();
}

// Spans of single characters for which `is` holds.
template <class Predicate>
void CoverCharacters(std::string_view text, const Predicate& is, std::vector<Span>& out) {
  out.clear();
  size_t covered = 0;
  for (size_t i = 0; i < text.size();) {
    const size_t end = i + unicode::Length(text[i]);
    if (is(unicode::At(text, i))) {
      if (i > covered) out.push_back({covered, i, false});
      out.push_back({i, end, true});
      covered = end;
    }
    i = end;
  }
  if (covered < text.size()) out.push_back({covered, text.size(), false});
}

// Keeps `text` for as long as the pieces live.
Result<std::string_view> Keep(PreTokenizerScratch& scratch, std::string text) {
  scratch.used += text.size();
  if (scratch.used > scratch.limit) return TooLong(scratch.limit);
  scratch.made.push_back(std::move(text));
  return std::string_view(scratch.made.back());
}

class Split final : public PreTokenizer {
 public:
  Split(Pattern pattern, Behavior behavior, bool invert)
      : pattern_(std::move(pattern)), behavior_(behavior), invert_(invert) {}
  Status Apply(PreTokenizerScratch& scratch) const override {
    return CutAll(scratch, behavior_, [&](std::string_view text, std::vector<Span>& spans) {
      TEMPER_RETURN_IF_ERROR(pattern_.Cover(text, scratch.regex, spans));
      if (invert_) {
        for (Span& span : spans) span.is_match = !span.is_match;
      }
      return OkStatus();
    });
  }

 private:
  Pattern pattern_;
  Behavior behavior_;
  bool invert_;
};

using Predicate = bool (*)(char32_t);

class CharacterSplit final : public PreTokenizer {
 public:
  CharacterSplit(Predicate is, Behavior behavior) : is_(is), behavior_(behavior) {}
  Status Apply(PreTokenizerScratch& scratch) const override {
    return CutAll(scratch, behavior_, [&](std::string_view text, std::vector<Span>& spans) {
      CoverCharacters(text, is_, spans);
      return OkStatus();
    });
  }

 private:
  Predicate is_;
  Behavior behavior_;
};

// "Whitespace": runs of word characters and runs of neither words nor spaces; spaces vanish.
class Words final : public PreTokenizer {
 public:
  Status Apply(PreTokenizerScratch& scratch) const override {
    return CutAll(scratch, Behavior::kRemoved, [&](std::string_view text, std::vector<Span>& spans) {
      spans.clear();
      int previous = -1;
      for (size_t i = 0; i < text.size(); i += unicode::Length(text[i])) {
        const char32_t c = unicode::At(text, i);
        const int kind = unicode::IsWord(c) ? 0 : unicode::IsSpace(c) ? 1 : 2;
        const size_t end = i + unicode::Length(text[i]);
        if (kind == previous) {
          spans.back().end = end;
        } else {
          spans.push_back({i, end, kind == 1});
        }
        previous = kind;
      }
      return OkStatus();
    });
  }
};

class ByteLevel final : public PreTokenizer {
 public:
  ByteLevel(bool add_prefix_space, std::optional<Pattern> words, bool spell_out)
      : add_prefix_space_(add_prefix_space), words_(std::move(words)), spell_out_(spell_out) {}

  Status Apply(PreTokenizerScratch& scratch) const override {
    if (add_prefix_space_) {
      for (Piece& piece : scratch.pieces) {
        if (piece.text.starts_with(' ')) continue;
        TEMPER_ASSIGN_OR_RETURN(piece.text, Keep(scratch, std::string(" ").append(piece.text)));
      }
    }
    if (words_) {
      TEMPER_RETURN_IF_ERROR(CutAll(scratch, Behavior::kIsolated, [&](std::string_view text, std::vector<Span>& spans) {
        return words_->Cover(text, scratch.regex, spans);
      }));
    }
    if (!spell_out_) return OkStatus();
    for (Piece& piece : scratch.pieces) {
      std::string spelled;
      for (const char c : piece.text) spelled += ByteLevelCharacters()[static_cast<unsigned char>(c)];
      TEMPER_ASSIGN_OR_RETURN(piece.text, Keep(scratch, std::move(spelled)));
    }
    return OkStatus();
  }

 private:
  bool add_prefix_space_;
  std::optional<Pattern> words_;
  bool spell_out_;
};

class Metaspace final : public PreTokenizer {
 public:
  enum class Prepend { kAlways, kFirst, kNever };
  Metaspace(std::string replacement, Prepend prepend, bool split)
      : replacement_(std::move(replacement)), prepend_(prepend), split_(split) {}

  Status Apply(PreTokenizerScratch& scratch) const override {
    for (Piece& piece : scratch.pieces) {
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
      TEMPER_ASSIGN_OR_RETURN(piece.text, Keep(scratch, std::move(text)));
    }
    if (!split_) return OkStatus();
    const char32_t mark = unicode::At(replacement_, 0);
    return CutAll(scratch, Behavior::kMergedWithNext, [&](std::string_view text, std::vector<Span>& spans) {
      CoverCharacters(
          text, [&](char32_t c) { return c == mark; }, spans);
      return OkStatus();
    });
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
      fmt::format("{}: '{}' is no behavior of a split (Removed, Isolated, MergedWithPrevious, MergedWithNext, "
                  "Contiguous)",
                  where, name));
}

Result<std::unique_ptr<PreTokenizer>> MakeMetaspace(const Json& json, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(std::string replacement, StringOr(json, "replacement", "\xE2\x96\x81", where));
  if (replacement.empty() || unicode::Length(replacement[0]) != replacement.size()) {
    return Corrupt(where + ": the replacement of Metaspace should be one character");
  }
  // Before 2024 there was only add_prefix_space.
  TEMPER_ASSIGN_OR_RETURN(const bool add, BoolOr(json, "add_prefix_space", true, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string scheme, StringOr(json, "prepend_scheme", add ? "always" : "never", where));
  TEMPER_ASSIGN_OR_RETURN(const bool split, BoolOr(json, "split", true, where));
  if (scheme != "always" && scheme != "first" && scheme != "never") {
    return Corrupt(fmt::format("{}: '{}' is no prepend_scheme (always, first, never)", where, scheme));
  }
  const auto prepend = scheme == "always"  ? Metaspace::Prepend::kAlways
                       : scheme == "first" ? Metaspace::Prepend::kFirst
                                           : Metaspace::Prepend::kNever;
  return std::unique_ptr<PreTokenizer>(std::make_unique<Metaspace>(std::move(replacement), prepend, split));
}

// The steps of nested Sequences, in order.
Status Flatten(const Json& json, std::vector<const Json*>& steps, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type != "Sequence") {
    if (steps.size() == kMaxSteps) return Corrupt(fmt::format("{}: more than {} pre-tokenizers", where, kMaxSteps));
    steps.push_back(&json);
    return OkStatus();
  }
  const auto it = json.find("pretokenizers");
  if (it == json.end() || !it->is_array()) return Corrupt(where + ": a Sequence pre-tokenizer without 'pretokenizers'");
  for (const Json& step : *it) TEMPER_RETURN_IF_ERROR(Flatten(step, steps, where));
  return OkStatus();
}

Result<std::unique_ptr<PreTokenizer>> MakeStep(const Json& json, bool spell_out, const std::string& where) {
  using Made = std::unique_ptr<PreTokenizer>;
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "ByteLevel") {
    TEMPER_ASSIGN_OR_RETURN(const bool prefix, BoolOr(json, "add_prefix_space", true, where));
    TEMPER_ASSIGN_OR_RETURN(const bool use_regex, BoolOr(json, "use_regex", true, where));
    std::optional<Pattern> words;
    if (use_regex) {
      TEMPER_ASSIGN_OR_RETURN(words, Pattern::OfRegex(kGpt2Words, where));
    }
    return Made(std::make_unique<ByteLevel>(prefix, std::move(words), spell_out));
  }
  if (type == "Split") {
    TEMPER_ASSIGN_OR_RETURN(Pattern pattern, Pattern::FromJson(json, where));
    TEMPER_ASSIGN_OR_RETURN(const Behavior behavior, BehaviorFromJson(json, "", where));
    TEMPER_ASSIGN_OR_RETURN(const bool invert, BoolOr(json, "invert", false, where));
    return Made(std::make_unique<Split>(std::move(pattern), behavior, invert));
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
                  "Punctuation, Whitespace, WhitespaceSplit are)",
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
    TEMPER_ASSIGN_OR_RETURN(auto one, MakeStep(*step, /*spell_out=*/!raw, where));
    made.push_back(std::move(one));
  }
  return made;
}

}  // namespace temper
