// Preview: what the model will see, for a person's eyes (temper data preview): supervised text, masked text, weights
// that are not 1, where packed samples meet, and the counts. Pure functions of their arguments; any thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "data/token_store.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

struct PreviewOptions {
  // true: supervised green, masked dim, by ANSI sequences. false: supervised text stands between [[ and ]]. A weight
  // stands behind: "So.{0.5}", "[[So.]]{0.5}".
  bool colour = false;
  int64_t max_tokens = 2000;  // per sample; what is left out is said
};

// One sample: a line of counts, then its text, special tokens spelled out. Control characters in the text are shown as
// \xNN, so that data cannot drive the terminal.
std::string PreviewSample(const TokenStore& store, int64_t sample, const Tokenizer& tokenizer,
                          const PreviewOptions& options);

// One sample as an object on one line, for programs: "place", "input_ids", "labels" (-100 where nothing is learnt),
// "weights" (of labels; only where one is not 1), and "spans": [{"begin", "end", "text"}], the learnt tokens
// [begin, end) and what they say. Text that is cut within a character has U+FFFD there.
std::string SampleAsJson(const TokenStore& store, int64_t sample, const std::string& place, const Tokenizer& tokenizer);

// A packed row: its samples one after another under a line that tells how full the row of `max_seq_len` is.
std::string PreviewRow(const TokenStore& store, std::span<const int32_t> samples, int64_t max_seq_len,
                       const Tokenizer& tokenizer, const PreviewOptions& options);

}  // namespace temper
