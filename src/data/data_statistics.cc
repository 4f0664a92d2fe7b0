#include "data/data_statistics.h"

#include <algorithm>

namespace temper {
namespace {

// How many bad rows' messages are kept: enough to see what is wrong with a file.
constexpr size_t kProblemsKept = 5;

}  // namespace

void DataStatistics::Add(const DataStatistics& o) {
  rows += o.rows;
  bad_rows += o.bad_rows;
  cut_rows += o.cut_rows;
  cut_tokens += o.cut_tokens;
  left_out_rows += o.left_out_rows;
  dropped_rows += o.dropped_rows;
  split_borders += o.split_borders;
  split_rows += o.split_rows;
  split_samples += o.split_samples;
  split_tokens += o.split_tokens;
  unsplit_tokens += o.unsplit_tokens;
  longest_row = std::max(longest_row, o.longest_row);
  samples += o.samples;
  tokens += o.tokens;
  supervised += o.supervised;
  weighted += o.weighted;
  least_weight = std::min(least_weight, o.least_weight);
  largest_weight = std::max(largest_weight, o.largest_weight);
  stopping_samples += o.stopping_samples;
  empty_answers.Add(o.empty_answers);
  unprinted_turns.Add(o.unprinted_turns);
  open_turns.Add(o.open_turns);
  unprinted_fields.Add(o.unprinted_fields);
  unread_fields.Add(o.unread_fields);
  absent_fields.Add(o.absent_fields);
  for (const std::string& problem : o.problems) {
    if (problems.size() < kProblemsKept) problems.push_back(problem);
  }
  unknown.Add(o.unknown);
}

}  // namespace temper
