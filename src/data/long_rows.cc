#include "data/long_rows.h"

#include <fmt/core.h>

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace temper {
namespace {

template <class T>
void Append(const std::vector<T>& from, size_t begin, int64_t n, std::vector<T>& to) {
  if (from.empty()) return;
  const auto first = from.begin() + static_cast<int64_t>(begin);
  to.insert(to.end(), first, first + n);
}

}  // namespace

TurnLength KeptOfTurn(TurnLength turn, int64_t room) {
  int64_t most_of_answer = room;
  if (turn.answer * 2 >= room) {
    const double share = static_cast<double>(turn.answer) / static_cast<double>(turn.prompt + turn.answer);
    const bool short_prompt = turn.prompt * 2 < room;
    most_of_answer = short_prompt ? room - turn.prompt : static_cast<int64_t>(static_cast<double>(room) * share);
  }
  TurnLength kept{.answer = std::min(most_of_answer, turn.answer)};
  kept.prompt = std::min(std::max<int64_t>(room - kept.answer, 0), turn.prompt);
  return kept;
}

void CutInProportion(int64_t room, Sample& sample) {
  Sample out;
  const size_t size = sample.tokens.size();
  TEMPER_CHECK(sample.supervised.size() == size) << sample.supervised.size() << " of " << size;
  for (size_t at = 0; at < size && static_cast<int64_t>(out.tokens.size()) < room;) {
    size_t answer = at, end = at;
    while (answer < size && !sample.supervised[answer]) ++answer;
    for (end = answer; end < size && sample.supervised[end];) ++end;
    const TurnLength kept =
        KeptOfTurn({.prompt = static_cast<int64_t>(answer - at), .answer = static_cast<int64_t>(end - answer)},
                   room - static_cast<int64_t>(out.tokens.size()));
    for (const auto& [begin, n] : {std::pair(at, kept.prompt), {answer, kept.answer}}) {
      Append(sample.tokens, begin, n, out.tokens);
      Append(sample.supervised, begin, n, out.supervised);
      Append(sample.weights, begin, n, out.weights);
    }
    at = end;
  }
  sample.tokens = std::move(out.tokens);
  sample.supervised = std::move(out.supervised);
  sample.weights = std::move(out.weights);
  sample.unknown.clear();  // which of them are left is not known
}

Status TooLong(const std::string& where, int64_t length, int64_t max_seq_len) {
  return Corrupt(
      fmt::format("{}: the row has {} tokens, and max_seq_len is {}: raise it, or let long rows be cut or left out "
                  "(--long_rows drop, or cut where the task takes it)",
                  where, length, max_seq_len));
}

}  // namespace temper
