#include "data/tokenizer/decoder.h"

#include <fmt/core.h>

#include <charconv>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/utf8.h"
#include "data/tokenizer/byte_level.h"
#include "data/tokenizer/text_pattern.h"

namespace temper {
namespace {

constexpr size_t kMaxDecoderSteps = 64;  // real files have four

class ByteLevelDecoder final : public Decoder {
 public:
  void Apply(std::vector<std::string>& parts, size_t) const override {
    std::string bytes;
    for (const std::string& part : parts) {
      const auto spelled = BytesOfToken(part);
      bytes += spelled ? *spelled : part;
    }
    std::string storage;
    parts.assign(1, std::string(utf8::MakeValid(bytes, storage)));
  }
};

// Decodes runs of tokens like "<0xE2>": to the bytes if they are UTF-8, else to one U+FFFD for each.
class ByteFallback final : public Decoder {
 public:
  void Apply(std::vector<std::string>& parts, size_t) const override {
    std::vector<std::string> out;
    std::string run;
    const auto flush = [&] {
      if (run.empty()) return;
      if (utf8::ValidPrefix(run) == run.size()) {
        out.push_back(run);
      } else {
        out.insert(out.end(), run.size(), std::string(utf8::kReplacement));
      }
      run.clear();
    };
    for (std::string& part : parts) {
      if (const auto byte = ByteOf(part)) {
        run += static_cast<char>(*byte);
      } else {
        flush();
        out.push_back(std::move(part));
      }
    }
    flush();
    parts = std::move(out);
  }

 private:
  static std::optional<unsigned char> ByteOf(const std::string& part) {
    if (part.size() != 6 || !part.starts_with("<0x") || part.back() != '>') return std::nullopt;
    unsigned value = 0;
    const auto [end, error] = std::from_chars(part.data() + 3, part.data() + 5, value, 16);
    if (error != std::errc() || end != part.data() + 5) return std::nullopt;
    return static_cast<unsigned char>(value);
  }
};

class MetaspaceDecoder final : public Decoder {
 public:
  MetaspaceDecoder(char32_t replacement, bool prepended) : replacement_(replacement), prepended_(prepended) {}
  void Apply(std::vector<std::string>& parts, size_t) const override {
    for (size_t p = 0; p < parts.size(); ++p) {
      std::string out;
      for (size_t i = 0; i < parts[p].size(); i += utf8::Length(parts[p][i])) {
        const char32_t c = utf8::At(parts[p], i);
        if (c != replacement_) {
          utf8::Append(out, c);
        } else if (p > 0 || !prepended_) {
          out += ' ';
        }
      }
      parts[p] = std::move(out);
    }
  }

 private:
  char32_t replacement_;
  bool prepended_;
};

class ReplaceDecoder final : public Decoder {
 public:
  ReplaceDecoder(TextPattern pattern, std::string content)
      : pattern_(std::move(pattern)), content_(std::move(content)) {}
  void Apply(std::vector<std::string>& parts, size_t limit) const override {
    RegexScratch scratch;
    size_t total = 0;
    for (const std::string& part : parts) total += part.size();
    for (std::string& part : parts) {
      total -= part.size();
      // If the expression fails, or the text would grow too long, the part stays: a decoder reports no errors.
      if (total < limit) (void)pattern_.ReplaceAll(part, content_, limit - total, scratch);
      total += part.size();
    }
  }

 private:
  TextPattern pattern_;
  std::string content_;
};

class Fuse final : public Decoder {
 public:
  void Apply(std::vector<std::string>& parts, size_t) const override {
    std::string all;
    for (const std::string& part : parts) all += part;
    parts.assign(1, std::move(all));
  }
};

// Drops up to `start` times `content` from the left of each part and up to `stop` times from the right.
class StripDecoder final : public Decoder {
 public:
  StripDecoder(std::string content, int64_t start, int64_t stop)
      : content_(std::move(content)), start_(start), stop_(stop) {}
  void Apply(std::vector<std::string>& parts, size_t) const override {
    for (std::string& part : parts) {
      std::string_view rest = part;
      for (int64_t i = 0; i < start_ && rest.starts_with(content_); ++i) rest.remove_prefix(content_.size());
      for (int64_t i = 0; i < stop_ && rest.ends_with(content_); ++i) rest.remove_suffix(content_.size());
      part = std::string(rest);
    }
  }

 private:
  std::string content_;  // one character
  int64_t start_, stop_;
};

// WordPiece: a token that continues a word loses its mark, any other but the first gets a space.
class WordPieceDecoder final : public Decoder {
 public:
  WordPieceDecoder(std::string prefix, bool cleanup) : prefix_(std::move(prefix)), cleanup_(cleanup) {}
  void Apply(std::vector<std::string>& parts, size_t) const override {
    for (size_t i = 0; i < parts.size(); ++i) {
      std::string& part = parts[i];
      if (i > 0 && part.starts_with(prefix_)) {
        part.erase(0, prefix_.size());
      } else if (i > 0) {
        part.insert(0, " ");
      }
      if (cleanup_) CleanUp(part);
    }
  }

 private:
  // The tokenizers library's rules, in its order.
  static void CleanUp(std::string& text) {
    static constexpr std::pair<std::string_view, std::string_view> kRules[] = {
        {" .", "."},   {" ?", "?"},           {" !", "!"},   {" ,", ","},     {" ' ", "'"},   {" n't", "n't"},
        {" 'm", "'m"}, {" do not", " don't"}, {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};
    for (const auto& [from, to] : kRules) {
      for (size_t at = text.find(from); at != text.npos; at = text.find(from, at + to.size())) {
        text.replace(at, from.size(), to);
      }
    }
  }

  std::string prefix_;
  bool cleanup_;
};

class SequenceDecoder final : public Decoder {
 public:
  explicit SequenceDecoder(std::vector<std::unique_ptr<Decoder>> steps) : steps_(std::move(steps)) {}
  void Apply(std::vector<std::string>& parts, size_t limit) const override {
    for (const auto& step : steps_) step->Apply(parts, limit);
  }

 private:
  std::vector<std::unique_ptr<Decoder>> steps_;
};

Result<std::string> OneCharacter(const Json& json, const char* key, const char* fallback, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(std::string value, StringOr(json, key, fallback, where));
  if (value.empty() || utf8::Length(value[0]) != value.size()) {
    return Corrupt(fmt::format("{}: '{}' of a decoder should be one character", where, key));
  }
  return value;
}

Result<std::unique_ptr<Decoder>> MakeDecoderStep(const std::string& type, const Json& json, const std::string& where) {
  using Made = std::unique_ptr<Decoder>;
  if (type == "ByteLevel") return Made(std::make_unique<ByteLevelDecoder>());
  if (type == "ByteFallback") return Made(std::make_unique<ByteFallback>());
  if (type == "Fuse") return Made(std::make_unique<Fuse>());
  if (type == "Metaspace") {
    TEMPER_ASSIGN_OR_RETURN(const std::string mark, OneCharacter(json, "replacement", "\xE2\x96\x81", where));
    TEMPER_ASSIGN_OR_RETURN(const bool add, BoolOr(json, "add_prefix_space", true, where));
    TEMPER_ASSIGN_OR_RETURN(const std::string scheme,
                            StringOr(json, "prepend_scheme", add ? "always" : "never", where));
    return Made(std::make_unique<MetaspaceDecoder>(utf8::At(mark, 0), scheme != "never"));
  }
  if (type == "WordPiece") {
    TEMPER_ASSIGN_OR_RETURN(std::string prefix, StringOr(json, "prefix", "##", where));
    TEMPER_ASSIGN_OR_RETURN(const bool cleanup, BoolOr(json, "cleanup", true, where));
    return Made(std::make_unique<WordPieceDecoder>(std::move(prefix), cleanup));
  }
  if (type == "Replace") {
    TEMPER_ASSIGN_OR_RETURN(TextPattern pattern, TextPattern::FromJson(json, where));
    TEMPER_ASSIGN_OR_RETURN(std::string content, StringOr(json, "content", "", where));
    return Made(std::make_unique<ReplaceDecoder>(std::move(pattern), std::move(content)));
  }
  if (type == "Strip") {
    TEMPER_ASSIGN_OR_RETURN(std::string content, OneCharacter(json, "content", " ", where));
    TEMPER_ASSIGN_OR_RETURN(const int64_t start, IntOr(json, "start", 0, where));
    TEMPER_ASSIGN_OR_RETURN(const int64_t stop, IntOr(json, "stop", 0, where));
    return Made(std::make_unique<StripDecoder>(std::move(content), start, stop));
  }
  return Unsupported(
      fmt::format("{}: the decoder '{}' is not supported (Sequence, ByteLevel, Metaspace, WordPiece, ByteFallback, "
                  "Replace, Fuse, Strip are)",
                  where, type));
}

Status Collect(const Json& json, std::vector<std::unique_ptr<Decoder>>& out, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const std::string type, StringOr(json, "type", "", where));
  if (type == "Sequence") {
    const auto it = json.find("decoders");
    if (it == json.end() || !it->is_array()) return Corrupt(where + ": a Sequence decoder without 'decoders'");
    for (const Json& step : *it) TEMPER_RETURN_IF_ERROR(Collect(step, out, where));
    return OkStatus();
  }
  if (out.size() == kMaxDecoderSteps) return Corrupt(fmt::format("{}: more than {} decoders", where, kMaxDecoderSteps));
  TEMPER_ASSIGN_OR_RETURN(auto step, MakeDecoderStep(type, json, where));
  out.push_back(std::move(step));
  return OkStatus();
}

}  // namespace

Result<std::unique_ptr<Decoder>> Decoder::FromJson(const Json& json, const std::string& where) {
  if (json.is_null()) return std::unique_ptr<Decoder>();
  std::vector<std::unique_ptr<Decoder>> steps;
  TEMPER_RETURN_IF_ERROR(Collect(json, steps, where));
  if (steps.size() == 1) return std::move(steps[0]);
  return std::unique_ptr<Decoder>(std::make_unique<SequenceDecoder>(std::move(steps)));
}

}  // namespace temper
