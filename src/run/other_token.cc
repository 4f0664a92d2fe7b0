#include "run/other_token.h"

#include "data/tokenizer/tokenizer.h"
#include "format/quoted.h"

namespace temper {

std::optional<OtherToken> FirstOtherToken(const OpenedModel& own, const OpenedModel& other) {
  if (own.folder() == other.folder()) return std::nullopt;
  const auto of_own = own.LoadTokenizer(), of_other = other.LoadTokenizer();
  if (!of_own.ok() || !of_other.ok()) return std::nullopt;  // who needs one says so
  for (int32_t id = 0; id < (*of_own)->vocab_size(); ++id) {
    const std::string token = (*of_own)->IdToToken(id);
    if (token.empty()) continue;
    const std::string theirs = id < (*of_other)->vocab_size() ? (*of_other)->IdToToken(id) : "";
    if (theirs != token) return OtherToken{id, Quoted(token), theirs.empty() ? "none" : Quoted(theirs)};
  }
  return std::nullopt;
}

}  // namespace temper
