// Pairs of answers: a row with a chosen and a rejected answer to one prompt, as two rows of one answer each.
//
//   prompt, chosen, rejected              texts, or lists of messages
//   chosen, rejected                      the prompt is what both begin with; also beside a prompt of the other kind
//   question | instruction [+ input, ...] with chosen, rejected: texts
//   messages | conversations              with chosen, rejected: texts or a message each
//   messages, rejected_response           the last message is the chosen answer
#pragma once

#include <string>

#include "base/status.h"
#include "data/record_format.h"
#include "format/json.h"

namespace temper {

// Whether `row`, an object, has two answers.
bool HasPair(const OrderedJson& row);

struct PairOfRows {
  RecordFormat format;
  OrderedJson chosen, rejected;
};
// Errors name `where` and the field.
Result<PairOfRows> SplitPair(OrderedJson row, const std::string& where);

}  // namespace temper
