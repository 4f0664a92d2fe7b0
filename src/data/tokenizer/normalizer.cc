#include "data/tokenizer/normalizer.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <vector>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/charsmap.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

class SequenceNormalizer final : public Normalizer {
 public:
  explicit SequenceNormalizer(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  Status Apply(Stretch& stretch, RegexScratch& scratch) const override {
    for (const auto& step : steps_) {
      TEMPER_RETURN_IF_ERROR(step->Apply(stretch, scratch));
      if (stretch.text.size() > stretch.limit) return TooLong(stretch.limit);
    }
    return OkStatus();
  }
  bool Follow(TextBorder& border) const override {
    return std::all_of(steps_.begin(), steps_.end(), [&](const auto& step) { return step->Follow(border); });
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string what) : what_(std::move(what)) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    if (!stretch.text.empty() && !stretch.continues) stretch.text.insert(0, what_);
    return OkStatus();
  }
  bool Follow(TextBorder&) const override { return true; }

 private:
  std::string what_;
};

class ReplaceNormalizer final : public Normalizer {
 public:
  ReplaceNormalizer(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(Stretch& stretch, RegexScratch& scratch) const override {
    return pattern_.ReplaceAll(stretch.text, content_, stretch.limit, scratch);
  }
  bool Follow(TextBorder& border) const override {
    const TextPattern::At at = pattern_.Find(border);
    if (at == TextPattern::At::kMatchBegins) return border.Become(border.left, content_);
    return at == TextPattern::At::kOutside;
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class UnicodeForm final : public Normalizer {
 public:
  explicit UnicodeForm(unicode::Form form) : form_(form) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    stretch.text = unicode::Normalize(stretch.text, form_);
    return OkStatus();
  }
  // Marks are what is reordered and composed with a character before it; so are some Hangul letters. No ASCII character
  // and no punctuation is.
  bool Follow(TextBorder& border) const override {
    const char32_t right = utf8::At(border.right, 0);
    if (right >= 0x80 && !unicode::IsPunctuation(right)) return false;
    // A compatibility form may become a mark, which joins the character before it: "ﾊﾞ" is one character in NFKC.
    const std::string left = unicode::Normalize(border.left, form_);
    const char32_t first = left.empty() ? 0 : utf8::At(left, 0);
    if (unicode::IsMark(first) || unicode::MayJoinBefore(first)) return false;
    return border.Become(left, unicode::Normalize(border.right, form_));
  }

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    stretch.text = unicode::Lowercase(stretch.text);
    return OkStatus();
  }
  bool Follow(TextBorder& border) const override {
    return border.Become(unicode::Lowercase(border.left), unicode::Lowercase(border.right));
  }
};

class StripNormalizer final : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    std::string& text = stretch.text;
    size_t begin = 0;
    while (left_ && !stretch.continues && begin < text.size() && unicode::IsSpace(utf8::At(text, begin)))
      begin += utf8::Length(text[begin]);
    if (begin > 0) stretch.at_start = false;
    text.erase(0, begin);
    while (right_ && !text.empty()) {
      const size_t last = utf8::LastStart(text);
      if (!unicode::IsSpace(utf8::At(text, last))) break;
      text.resize(last);
    }
    return OkStatus();
  }
  bool Follow(TextBorder&) const override { return true; }  // the left character is no white space

 private:
  bool left_, right_;
};

class StripAccents final : public Normalizer {
 public:
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    std::string kept;
    for (size_t i = 0; i < stretch.text.size(); i += utf8::Length(stretch.text[i])) {
      const char32_t c = utf8::At(stretch.text, i);
      if (!unicode::IsMark(c)) utf8::Append(kept, c);
    }
    stretch.text = std::move(kept);
    return OkStatus();
  }
  bool Follow(TextBorder& border) const override {
    return !unicode::IsMark(utf8::At(border.left, 0)) && !unicode::IsMark(utf8::At(border.right, 0));
  }
};

class ByteLevelNormalizer final : public Normalizer {
 public:
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    stretch.text = SpelledOut(stretch.text);
    return OkStatus();
  }
  bool Follow(TextBorder& border) const override {
    return border.Become(SpelledOut(border.left), SpelledOut(border.right));
  }
};

class Precompiled final : public Normalizer {
 public:
  explicit Precompiled(Charsmap map) : map_(std::move(map)) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    auto text = map_.Apply(stretch.text, stretch.limit);
    if (!text) return TooLong(stretch.limit);
    stretch.text = *std::move(text);
    return OkStatus();
  }
  // A character in front of the left one, or behind the right one, may change what becomes of it.
  bool Follow(TextBorder&) const override { return false; }

 private:
  Charsmap map_;
};

// BERT's: drops control characters, puts spaces around Chinese characters, drops accents, lowers the case.
class BertNormalizer final : public Normalizer {
 public:
  struct Options {
    bool clean_text = true, handle_chinese_chars = true, strip_accents = true, lowercase = true;
  };
  explicit BertNormalizer(const Options& options) : options_(options) {}

  Status Apply(Stretch& stretch, RegexScratch&) const override {
    if (options_.clean_text || options_.handle_chinese_chars) {
      std::string out;
      for (size_t i = 0; i < stretch.text.size(); i += utf8::Length(stretch.text[i])) {
        char32_t c = utf8::At(stretch.text, i);
        if (options_.clean_text && IsDropped(c)) continue;
        if (options_.clean_text && unicode::IsSpace(c)) c = ' ';
        const bool apart = options_.handle_chinese_chars && IsChinese(c);
        if (apart) out += ' ';
        utf8::Append(out, c);
        if (apart) out += ' ';
      }
      stretch.text = std::move(out);
    }
    if (options_.strip_accents) {
      const std::string apart = unicode::Normalize(stretch.text, unicode::Form::kNfd);
      stretch.text.clear();
      for (size_t i = 0; i < apart.size(); i += utf8::Length(apart[i])) {
        const char32_t c = utf8::At(apart, i);
        if (!unicode::IsNonspacingMark(c)) utf8::Append(stretch.text, c);
      }
    }
    if (options_.lowercase) stretch.text = unicode::Lowercase(stretch.text);
    return OkStatus();
  }
  // ASCII characters change alone.
  bool Follow(TextBorder& border) const override {
    const auto plain = [](const std::string& c) { return c[0] >= ' ' && c[0] <= '~'; };
    if (!plain(border.left) || !plain(border.right)) return false;
    return !options_.lowercase || border.Become(unicode::Lowercase(border.left), unicode::Lowercase(border.right));
  }

 private:
  static bool IsDropped(char32_t c) {
    return c == 0 || c == 0xFFFD || (unicode::IsOther(c) && c != '\t' && c != '\n' && c != '\r');
  }
  static bool IsChinese(char32_t c) {
    return (c >= 0x4E00 && c <= 0x9FFF) || (c >= 0x3400 && c <= 0x4DBF) || (c >= 0x20000 && c <= 0x2A6DF) ||
           (c >= 0x2A700 && c <= 0x2B81F) || (c >= 0x2B920 && c <= 0x2CEAF) || (c >= 0xF900 && c <= 0xFAFF) ||
           (c >= 0x2F800 && c <= 0x2FA1F);
  }

  Options options_;
};

}  // namespace

Result<std::unique_ptr<Normalizer>> Normalizer::FromJson(const Json& json, const std::string& where) {
  using Made = std::unique_ptr<Normalizer>;
  if (json.is_null()) return Made();
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "Sequence") {
    const auto it = json.find("normalizers");
    if (it == json.end() || !it->is_array()) return Corrupt(where + ": a Sequence normalizer without 'normalizers'");
    std::vector<Made> steps;
    for (const Json& step : *it) {
      TEMPER_ASSIGN_OR_RETURN(Made made, FromJson(step, where));
      if (made) steps.push_back(std::move(made));
    }
    return Made(std::make_unique<SequenceNormalizer>(std::move(steps)));
  }
  if (type == "Prepend") {
    TEMPER_ASSIGN_OR_RETURN(std::string what, StringOr(json, "prepend", "", where));
    return Made(std::make_unique<Prepend>(std::move(what)));
  }
  if (type == "Replace") {
    TEMPER_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(json, where));
    TEMPER_ASSIGN_OR_RETURN(std::string content, StringOr(json, "content", "", where));
    return Made(std::make_unique<ReplaceNormalizer>(std::move(pattern), std::move(content)));
  }
  if (type == "NFC") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfc));
  if (type == "NFD") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfd));
  if (type == "NFKC") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfkc));
  if (type == "NFKD") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfkd));
  if (type == "Lowercase") return Made(std::make_unique<Lowercase>());
  if (type == "StripAccents") return Made(std::make_unique<StripAccents>());
  if (type == "ByteLevel") return Made(std::make_unique<ByteLevelNormalizer>());
  if (type == "Precompiled") {
    const Json* const value = FindValue(json, "precompiled_charsmap");
    if (value == nullptr || value->is_null()) return Made();
    TEMPER_ASSIGN_OR_RETURN(const std::string text, StringOr(json, "precompiled_charsmap", "", where));
    TEMPER_ASSIGN_OR_RETURN(Charsmap map, Charsmap::Create(text, where));
    return Made(std::make_unique<Precompiled>(std::move(map)));
  }
  if (type == "BertNormalizer") {
    BertNormalizer::Options options;
    TEMPER_ASSIGN_OR_RETURN(options.clean_text, BoolOr(json, "clean_text", true, where));
    TEMPER_ASSIGN_OR_RETURN(options.handle_chinese_chars, BoolOr(json, "handle_chinese_chars", true, where));
    TEMPER_ASSIGN_OR_RETURN(options.lowercase, BoolOr(json, "lowercase", true, where));
    const Json* const strip = FindValue(json, "strip_accents");
    options.strip_accents = options.lowercase;
    if (strip != nullptr && !strip->is_null()) {
      TEMPER_ASSIGN_OR_RETURN(options.strip_accents, BoolOr(json, "strip_accents", true, where));
    }
    return Made(std::make_unique<BertNormalizer>(options));
  }
  if (type == "Strip") {
    TEMPER_ASSIGN_OR_RETURN(const bool left, BoolOr(json, "strip_left", true, where));
    TEMPER_ASSIGN_OR_RETURN(const bool right, BoolOr(json, "strip_right", true, where));
    return Made(std::make_unique<StripNormalizer>(left, right));
  }
  return Unsupported(
      fmt::format("{}: the normalizer '{}' is not supported (Sequence, Prepend, Replace, NFC, NFD, NFKC, "
                  "NFKD, Lowercase, Strip, StripAccents, ByteLevel, Precompiled, BertNormalizer are)",
                  where, type));
}

}  // namespace temper
