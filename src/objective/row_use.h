// RowUse: what a method of training reads rows of data for, and the table of what follows from that. Code that reads,
// tokenizes or checks rows asks the table; only data/records.cc knows more of a use: how a row becomes a record.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace temper {

enum class RowUse : uint8_t {
  kAnswers,    // an answer or a text each
  kFields,     // a row template: rows need no format
  kPairs,      // two answers each, of which one is better
  kRanked,     // the same, each judged as a whole, and a margin
  kRated,      // an answer each, and whether it is one to give (data/rating.h)
  kLabels,     // a text, a conversation or tokens, and a class (data/label.h)
  kSequences,  // the same, whether it has a class or not
};

// What a row may give for its whole sample (data/token_file.h).
enum class Section : uint8_t {
  kLabel,   // i32, not negative: the sample's class
  kMargin,  // f32: by how much the first of its answers is better
  kRating,  // i32: 1 if its answer is one to give, 0 if it is one to avoid
};

// Why a setting makes no sense for such rows: follows "task: NAME has no use for SETTING: ". nullptr: it does.
using WhyNot = const char*;

struct RowFacts {
  RowUse use;
  std::string_view name;          // in the key of a token file
  bool two_answers = false;       // samples are of two parts (data/pair.h)
  bool judged = false;            // a sample counts as a whole, not by its tokens
  bool one_text = false;          // a conversation is one sample, however the template rewrites earlier turns
  bool may_be_tokens = false;     // rows may be ready-made tokens
  bool by_template = false;       // a row template makes their texts
  bool weighs_tokens = false;     // a field `weight` is that of the loss
  std::optional<Section> gives;   // rows have to have it
  WhyNot no_text_file = nullptr;  // follows "FILE: a text file has no "
  WhyNot no_train_on_prompt = nullptr, no_reasoning_turns = nullptr, no_row_template = nullptr;
  WhyNot no_label_smoothing = nullptr, no_cp = nullptr;
  WhyNot no_cut = nullptr, no_proportional = nullptr;  // of long_rows

  // Of rows that say which answers are better.
  bool prefers() const { return two_answers || gives == Section::kRating; }
};

const RowFacts& FactsOf(RowUse use);

}  // namespace temper
