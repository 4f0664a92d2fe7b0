// Pairs of answers: a row with a chosen and a rejected answer to one prompt, as two rows of one answer each.
//
//   prompt, chosen, rejected              texts, or lists of messages
//   chosen, rejected                      the prompt is what both begin with. Of lists also where a text of the prompt
//                                         stands beside them; if they do not begin alike, that is the user's turn
//   question | instruction [+ input, ...] with chosen, rejected: texts
//   messages | conversations              with chosen, rejected: texts, a message or a list of messages each
//   messages, rejected_response           the last message is the chosen answer
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/status.h"
#include "data/record_format.h"
#include "format/json.h"

namespace temper {

// Whether `row`, an object, has two answers.
bool HasPair(const OrderedJson& row);

struct PairOfRows {
  RecordFormat format;
  OrderedJson chosen, rejected;
  std::vector<std::string> unread = {};  // fields of the row that are in neither
};
// Errors name `where` and the field.
Result<PairOfRows> SplitPair(OrderedJson row, const std::string& where);

}  // namespace temper
