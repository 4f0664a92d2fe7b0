#include "data/tokenizer/normalizer.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>
#include <vector>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/text_pattern.h"
#include "data/tokenizer/unicode.h"

namespace temper {
namespace {

class Sequence final : public Normalizer {
 public:
  explicit Sequence(std::vector<std::unique_ptr<Normalizer>> steps) : steps_(std::move(steps)) {}
  Status Apply(Stretch& stretch, RegexScratch& scratch) const override {
    for (const auto& step : steps_) {
      TEMPER_RETURN_IF_ERROR(step->Apply(stretch, scratch));
      if (stretch.text.size() > stretch.limit) return TooLong(stretch.limit);
    }
    return OkStatus();
  }

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class Prepend final : public Normalizer {
 public:
  explicit Prepend(std::string what) : what_(std::move(what)) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    if (!stretch.text.empty()) stretch.text.insert(0, what_);
    return OkStatus();
  }

 private:
  std::string what_;
};

class Replace final : public Normalizer {
 public:
  Replace(TextPattern pattern, std::string content) : pattern_(std::move(pattern)), content_(std::move(content)) {}
  Status Apply(Stretch& stretch, RegexScratch& scratch) const override {
    return pattern_.ReplaceAll(stretch.text, content_, stretch.limit, scratch);
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

 private:
  unicode::Form form_;
};

class Lowercase final : public Normalizer {
 public:
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    stretch.text = unicode::Lowercase(stretch.text);
    return OkStatus();
  }
};

class Strip final : public Normalizer {
 public:
  Strip(bool left, bool right) : left_(left), right_(right) {}
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    std::string& text = stretch.text;
    size_t begin = 0;
    while (left_ && begin < text.size() && unicode::IsSpace(utf8::At(text, begin))) begin += utf8::Length(text[begin]);
    if (begin > 0) stretch.at_start = false;
    text.erase(0, begin);
    while (right_ && !text.empty()) {
      const size_t last = utf8::LastStart(text);
      if (!unicode::IsSpace(utf8::At(text, last))) break;
      text.resize(last);
    }
    return OkStatus();
  }

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
};

class ByteLevel final : public Normalizer {
 public:
  Status Apply(Stretch& stretch, RegexScratch&) const override {
    std::string out;
    for (const char c : stretch.text) out += ByteLevelCharacters()[static_cast<unsigned char>(c)];
    stretch.text = std::move(out);
    return OkStatus();
  }
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
    return Made(std::make_unique<Sequence>(std::move(steps)));
  }
  if (type == "Prepend") {
    TEMPER_ASSIGN_OR_RETURN(std::string what, StringOr(json, "prepend", "", where));
    return Made(std::make_unique<Prepend>(std::move(what)));
  }
  if (type == "Replace") {
    TEMPER_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(json, where));
    TEMPER_ASSIGN_OR_RETURN(std::string content, StringOr(json, "content", "", where));
    return Made(std::make_unique<Replace>(std::move(pattern), std::move(content)));
  }
  if (type == "NFC") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfc));
  if (type == "NFD") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfd));
  if (type == "NFKC") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfkc));
  if (type == "NFKD") return Made(std::make_unique<UnicodeForm>(unicode::Form::kNfkd));
  if (type == "Lowercase") return Made(std::make_unique<Lowercase>());
  if (type == "StripAccents") return Made(std::make_unique<StripAccents>());
  if (type == "ByteLevel") return Made(std::make_unique<ByteLevel>());
  if (type == "Strip") {
    TEMPER_ASSIGN_OR_RETURN(const bool left, BoolOr(json, "strip_left", true, where));
    TEMPER_ASSIGN_OR_RETURN(const bool right, BoolOr(json, "strip_right", true, where));
    return Made(std::make_unique<Strip>(left, right));
  }
  return Unsupported(
      fmt::format("{}: the normalizer '{}' is not supported (Sequence, Prepend, Replace, NFC, NFD, NFKC, "
                  "NFKD, Lowercase, Strip, StripAccents, ByteLevel are)",
                  where, type));
}

}  // namespace temper
