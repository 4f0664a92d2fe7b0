#include "objective/row_use.h"

#include <gtest/gtest.h>

#include "objective/objective.h"

namespace temper::row_use_test {
namespace {

// Where a use says nothing of a setting, the setting is accepted: for these four no task with rows of its own has one.
TEST(RowUse, ATaskWithRowsOfItsOwnSaysWhyItTakesNoTextsPromptsTurnsAndTemplates) {
  for (const ObjectiveRule* const rule : Objectives()) {
    if (rule->rows == RowUse::kAnswers) continue;
    const RowFacts& rows = FactsOf(rule->rows);
    for (const WhyNot why :
         {rows.no_text_file, rows.no_train_on_prompt, rows.no_reasoning_turns, rows.no_row_template}) {
      EXPECT_NE(why, nullptr) << rule->name << " reads " << rows.name;
    }
  }
}

TEST(RowUse, ATaskOfTwoAnswersHasTheirParts) {
  for (const ObjectiveRule* const rule : Objectives()) {
    EXPECT_EQ(rule->parts.size(), FactsOf(rule->rows).two_answers ? 2 : 0) << rule->name;
    EXPECT_EQ(rule->rated, FactsOf(rule->rows).gives == Section::kRating) << rule->name;
  }
}

}  // namespace
}  // namespace temper::row_use_test
