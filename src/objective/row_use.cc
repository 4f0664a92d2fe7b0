#include "objective/row_use.h"

#include <array>
#include <cstddef>

namespace temper {
namespace {

constexpr RowFacts OfPairs(RowFacts facts) {
  facts.two_answers = true;
  facts.no_text_file = "pairs of answers: give rows with chosen and rejected";
  facts.no_train_on_prompt = "both answers have the same prompt, so it makes no difference";
  facts.no_reasoning_turns = "an answer is one text";
  facts.no_row_template = "it makes one text of a row, and a pair has two";
  facts.no_label_smoothing = "a pair has no words to smooth";
  facts.no_cp = "ranks would share rows, and a pair has to be whole on one";
  return facts;
}

constexpr RowFacts OfSequences(RowFacts facts) {
  facts.judged = true;
  facts.may_be_tokens = true;
  facts.no_text_file = "rows to classify: give rows with text and label";
  facts.no_train_on_prompt = "a class is that of a text as a whole";
  facts.no_reasoning_turns = "a conversation is one text";
  facts.no_row_template = "give the text as the field text (--columns text=COLUMN)";
  facts.no_proportional = "its rows are texts without an answer: choose cut, drop or error";
  return facts;
}

// By RowUse.
constexpr std::array kFacts = {
    RowFacts{.use = RowUse::kAnswers, .name = "answers", .may_be_tokens = true, .weighs_tokens = true},
    RowFacts{.use = RowUse::kFields, .name = "fields", .by_template = true},
    OfPairs({.use = RowUse::kPairs,
             .name = "pairs",
             .one_text = true,
             .no_proportional = "a row has two answers: choose cut, drop or error"}),
    OfPairs({.use = RowUse::kRanked,
             .name = "ranked pairs",
             .judged = true,
             .gives = Section::kMargin,
             .no_cut = "a cut answer is another one, so pairs that are too long are always left out (drop, or error)",
             .no_proportional = "a row has two answers: choose drop or error"}),
    RowFacts{.use = RowUse::kRated,
             .name = "rated answers",
             .one_text = true,
             .gives = Section::kRating,
             .no_text_file = "rated answers: give rows with prompt, completion and label",
             .no_train_on_prompt = "a rating is that of the answer",
             .no_reasoning_turns = "an answer is one text",
             .no_row_template = "it makes one text of a row, without a rating",
             .no_label_smoothing = "a rating has no words to smooth",
             .no_cp = "ranks would share rows, and an answer has to be whole on one"},
    OfSequences({.use = RowUse::kLabels, .name = "labels", .gives = Section::kLabel}),
    OfSequences({.use = RowUse::kSequences, .name = "sequences"}),
};

constexpr bool InOrder() {
  for (size_t i = 0; i < kFacts.size(); ++i) {
    if (kFacts[i].use != static_cast<RowUse>(i)) return false;
  }
  return true;
}
static_assert(InOrder() && kFacts.back().use == RowUse::kSequences);

}  // namespace

const RowFacts& FactsOf(RowUse use) {
  return kFacts[static_cast<size_t>(use)];
}

}  // namespace temper
