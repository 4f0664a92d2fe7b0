// Preview: shows a person what the model is trained on (temper data preview): supervised text, masked text, weights
// other than 1, borders of packed samples, and counts. Pure functions of their arguments; any thread.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/token_store.h"
#include "data/tokenizer/tokenizer.h"
#include "format/class_names.h"

namespace temper {

struct PreviewOptions {
  // true: supervised text is green, masked text dim, by ANSI sequences. false: supervised text is between [[ and ]]. A
  // weight follows its text: "So.{0.5}", "[[So.]]{0.5}".
  bool colour = false;
  // A line for each token: its place in the sample, its id, and its text as JSON has it. A token that ends within a
  // character has its spelling in the vocabulary instead, without quotes; the one that ends the character has the text.
  // The tokenizer's unknown token is followed by the text that it stands for, if `unknown` has it.
  bool tokens = false;
  // By sample: the text of each of its unknown tokens, as Sample::unknown.
  const std::map<int64_t, std::vector<std::string>>* unknown = nullptr;
  std::span<const std::string_view> parts = {};  // what the parts of samples are called
  const ClassNames* classes = nullptr;           // of labelled samples
  int64_t max_tokens = 2000;                     // per sample; the text says how many are left out
};

// One sample: a line of counts, then its text, special tokens spelled out. Control characters in the text are shown as
// \xNN, so that data cannot drive the terminal.
std::string PreviewSample(const TokenStore& store, int64_t sample, const Tokenizer& tokenizer,
                          const PreviewOptions& options);

// One sample as an object on one line, for programs: "place", "input_ids", "labels" (-100: masked), "weights" (of
// labels; only if one is not 1), "parts" (where those of a pair begin), "label" or "margin", and "spans": [{"begin",
// "end", "text"}], the supervised tokens [begin, end) and their text. Text that is cut within a character has U+FFFD
// there.
std::string SampleAsJson(const TokenStore& store, int64_t id, const std::string& place, const Tokenizer& tokenizer,
                         const ClassNames* classes = nullptr);

// A packed row: a line that says how full the row of `max_seq_len` is, then its samples.
std::string PreviewRow(const TokenStore& store, std::span<const int32_t> samples, int64_t max_seq_len,
                       const Tokenizer& tokenizer, const PreviewOptions& options);

}  // namespace temper
