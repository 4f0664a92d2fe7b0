#include "data/preview.h"

#include <fmt/core.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string_view>

#include "base/utf8.h"
#include "data/tokenizer/stream_decoder.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr std::string_view kGreen = "\x1b[32m", kDim = "\x1b[2m", kReset = "\x1b[0m";

// The text that tokens [begin, end) add to the text before them.
std::string TextOf(std::span<const int32_t> tokens, size_t begin, size_t end, const Tokenizer& tokenizer) {
  const std::string before = tokenizer.Decode(tokens.first(begin), /*skip_special=*/false);
  std::string all = tokenizer.Decode(tokens.first(end), /*skip_special=*/false);
  if (all.starts_with(before)) return all.substr(before.size());
  // A character whose bytes lie on both sides of `begin` decodes differently with and without the rest.
  return tokenizer.Decode(tokens.subspan(begin, end - begin), /*skip_special=*/false);
}

int64_t SupervisedOf(const TokenSample& sample) {
  int64_t n = 0;
  for (int64_t i = 0; i < sample.length(); ++i) n += sample.supervised(i);
  return n;
}

// 0: the token is masked.
TokenWeight WeightOf(const TokenSample& sample, size_t i) {
  const auto at = static_cast<int64_t>(i);
  return sample.supervised(at) ? sample.weight(at) : 0;
}

std::string Marked(const std::string& text, TokenWeight weight, bool colour) {
  const bool supervised = weight > 0;
  std::string out = colour       ? fmt::format("{}{}{}", supervised ? kGreen : kDim, text, kReset)
                    : supervised ? "[[" + text + "]]"
                                 : text;
  if (supervised && weight != kUnitWeight) out += fmt::format("{{{}}}", WeightValue(weight));
  return out;
}

// Tokens [from, to), the first ones of a document.
std::string ShownText(const TokenSample& sample, size_t from, size_t to, const Tokenizer& tokenizer, bool colour) {
  const std::vector<int32_t> all = sample.tokens();
  const auto tokens = std::span<const int32_t>(all).subspan(from);
  std::string out;
  for (size_t begin = from; begin < to;) {
    const TokenWeight weight = WeightOf(sample, begin);
    size_t end = begin + 1;
    while (end < to && WeightOf(sample, end) == weight) ++end;
    out += Marked(utf8::Harmless(TextOf(tokens, begin - from, end - from, tokenizer)), weight, colour);
    begin = end;
  }
  return out + '\n';
}

const std::string& LabelOf(const TokenStore& store, int64_t id, const ClassNames& classes) {
  return classes.names[static_cast<size_t>(store.values(id).label)];
}

std::string AsJson(const OrderedJson& json) {
  return DumpJson(json);
}

// `unknown`: the text of each unknown token from `from` on, and is then that of those from `to` on; further ones have
// none.
std::string Tokens(const TokenSample& sample, size_t from, size_t to, const Tokenizer& tokenizer, bool colour,
                   std::span<const std::string>& unknown) {
  StreamDecoder texts(tokenizer, /*skip_special=*/false);
  std::string out;
  for (size_t i = from; i < to; ++i) {
    const int32_t id = sample.token(static_cast<int64_t>(i));
    const std::string text = texts.Push(id);
    std::string quoted = text.empty() ? tokenizer.IdToToken(id) : AsJson(text);
    if (id == tokenizer.unknown() && !unknown.empty()) {
      if (!unknown[0].empty()) quoted = fmt::format("{} for {}", tokenizer.IdToToken(id), AsJson(unknown[0]));
      unknown = unknown.subspan(1);
    }
    out += fmt::format("{:>6} {:>7}  {}\n", i, id, Marked(utf8::Harmless(quoted), WeightOf(sample, i), colour));
  }
  return out;
}

// How many tokens the part that begins at `begin` has in common with the first part, from their beginnings on.
size_t SharedTokens(const TokenSample& sample, size_t begin, size_t end) {
  const auto at = [&](size_t i) { return sample.token(static_cast<int64_t>(i)); };
  size_t shared = 0;
  while (shared < begin && begin + shared < end && at(shared) == at(begin + shared)) ++shared;
  return shared;
}

std::string Body(const TokenStore& store, int64_t id, const Tokenizer& tokenizer, const PreviewOptions& options) {
  const TokenSample sample = store.sample(id);
  const auto length = static_cast<size_t>(sample.length());
  const size_t shown = std::min(length, static_cast<size_t>(std::max<int64_t>(options.max_tokens, 0)));
  std::span<const std::string> unknown;
  if (options.unknown) {
    if (const auto of = options.unknown->find(id); of != options.unknown->end()) unknown = of->second;
  }
  std::string out;
  size_t part = 0;
  for (size_t begin = 0, end = 0; begin < shown; begin = end, ++part) {
    end = static_cast<size_t>(sample.PartEnd(static_cast<int64_t>(begin)));
    if (end - begin < length && part < options.parts.size()) {
      const std::string parts_at =
          part == 0 ? "" : fmt::format(", as above up to token {}", SharedTokens(sample, begin, end));
      out += fmt::format("--- {}: {} tokens{}\n", options.parts[part], end - begin, parts_at);
    }
    const size_t to = std::min(end, shown);
    out += options.tokens ? Tokens(sample, begin, to, tokenizer, options.colour, unknown)
                          : ShownText(sample, begin, to, tokenizer, options.colour);
  }
  if (shown < length) out += fmt::format("... {} more tokens\n", length - shown);
  return out;
}

}  // namespace

std::string PreviewSample(const TokenStore& store, int64_t sample, const Tokenizer& tokenizer,
                          const PreviewOptions& options) {
  const std::string counts = store.sections().has(Section::kLabel) && options.classes != nullptr
                                 ? fmt::format("label {}", utf8::Harmless(LabelOf(store, sample, *options.classes)))
                             : store.sections().has(Section::kMargin)
                                 ? fmt::format("margin {}", store.values(sample).margin)
                             : store.sections().has(Section::kRating)
                                 ? fmt::format("{} supervised, an answer to {}", SupervisedOf(store.sample(sample)),
                                               store.values(sample).desirable != 0 ? "give" : "avoid")
                                 : fmt::format("{} supervised", SupervisedOf(store.sample(sample)));
  return fmt::format("--- sample {}: {} tokens, {} ---\n", sample, store.length(sample), counts) +
         Body(store, sample, tokenizer, options);
}

std::string SampleAsJson(const TokenStore& store, int64_t id, const std::string& place, const Tokenizer& tokenizer,
                         const ClassNames* classes) {
  const TokenSample sample = store.sample(id);
  const std::vector<int32_t> tokens = sample.tokens();
  OrderedJson labels = OrderedJson::array(), weights = OrderedJson::array(), spans = OrderedJson::array();
  bool weighted = false;
  size_t begin = 0;
  for (size_t i = 0; i <= tokens.size(); ++i) {
    const auto at = static_cast<int64_t>(i);
    const bool supervised = i < tokens.size() && sample.supervised(at);
    const bool before = i > 0 && sample.supervised(at - 1);
    if (supervised && !before) begin = i;
    if (before && !supervised) {
      spans.push_back({{"begin", begin}, {"end", i}, {"text", TextOf(tokens, begin, i, tokenizer)}});
    }
    if (i == tokens.size()) break;
    const TokenWeight weight = WeightOf(sample, i);
    labels.push_back(supervised ? tokens[i] : -100);
    weights.push_back(WeightValue(weight));
    weighted |= supervised && weight != kUnitWeight;
  }
  OrderedJson parts = OrderedJson::array();
  for (int64_t at = 0; at < sample.length(); at = sample.PartEnd(at)) parts.push_back(at);
  OrderedJson out = OrderedJson::object();
  out["place"] = place;
  if (parts.size() > 1) out["parts"] = std::move(parts);
  out["input_ids"] = tokens;
  out["labels"] = std::move(labels);
  if (store.sections().has(Section::kLabel) && classes != nullptr) out["label"] = LabelOf(store, id, *classes);
  if (store.sections().has(Section::kMargin)) out["margin"] = store.values(id).margin;
  if (store.sections().has(Section::kRating)) out["label"] = store.values(id).desirable != 0;
  if (weighted) out["weights"] = std::move(weights);
  out["spans"] = std::move(spans);
  return AsJson(out);
}

std::string PreviewRow(const TokenStore& store, std::span<const int32_t> samples, int64_t max_seq_len,
                       const Tokenizer& tokenizer, const PreviewOptions& options) {
  int64_t tokens = 0, supervised = 0;
  for (const int32_t sample : samples) {
    tokens += store.length(sample);
    supervised += SupervisedOf(store.sample(sample));
  }
  std::string out =
      fmt::format("=== row of {} samples: {} of {} tokens ({:.1f} %), {} supervised ===\n", samples.size(), tokens,
                  max_seq_len, 100.0 * static_cast<double>(tokens) / static_cast<double>(max_seq_len), supervised);
  for (const int32_t sample : samples) out += PreviewSample(store, sample, tokenizer, options);
  return out;
}

}  // namespace temper
