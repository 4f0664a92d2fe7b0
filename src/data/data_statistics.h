// DataStatistics: what was seen while rows became samples, and what their user should know of it.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "data/finding.h"
#include "data/template/token_weight.h"
#include "data/unknown_tokens.h"

namespace temper {

// Statistics of the rows; the caller prints them.
struct DataStatistics {
  int64_t rows = 0;           // read, good or bad
  int64_t bad_rows = 0;       // skipped (skip_bad_rows)
  int64_t cut_rows = 0;       // longer than max_seq_len, cut
  int64_t cut_tokens = 0;     // lost by that
  int64_t left_out_rows = 0;  // longer than max_seq_len, in no sample (LongRows::kDrop, and pairs that are judged)
  int64_t dropped_rows = 0;   // nothing supervised (left)
  int64_t split_borders = 0;  // borders that a token would have crossed
  // Conversations of which the template makes several texts, their samples, the tokens of these, and of the last of
  // each, which is what one sample of it would be about.
  int64_t split_rows = 0, split_samples = 0, split_tokens = 0, unsplit_tokens = 0;
  int64_t longest_row = 0;  // tokens, before cutting (plain text is never cut)
  int64_t samples = 0;
  int64_t tokens = 0;      // in the samples
  int64_t supervised = 0;  // of those
  int64_t weighted = 0;    // of those: with a weight other than 1, and these weights' bounds
  TokenWeight least_weight = kLargestWeight, largest_weight = 0;
  // Samples with a supervised token that ends generation. None at all: the model will not learn to stop.
  int64_t stopping_samples = 0;
  Finding empty_answers;    // not supervised, nor is the token that ends the turn
  Finding unprinted_turns;  // neither: the template prints nothing of their tool calls or reasoning
  Finding open_turns;       // the template ends them with text that is not one special token
  // What the template prints nothing of: by field of a message, and "tools" of a row (unprinted_fields.h).
  FieldFindings unprinted_fields;
  FieldFindings unread_fields;        // fields of rows that their format does not have
  FieldFindings absent_fields;        // what a row template prints and a row does not have
  std::vector<std::string> problems;  // of the first bad rows
  UnknownTokens unknown;

  void Add(const DataStatistics& other);
};

}  // namespace temper
