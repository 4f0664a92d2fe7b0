// OtherToken: where the tokenizers of two models that are to read the same tokens differ.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "run/opened_model.h"

namespace temper {

struct OtherToken {
  int32_t id = 0;
  std::string own, theirs;  // quoted; "none" where the other model has no such token
};

// The first token that stands for another text in the other model, as far as both have tokenizers. Their files may
// differ without that: a run writes them as transformers reads them.
std::optional<OtherToken> FirstOtherToken(const OpenedModel& own, const OpenedModel& other);

}  // namespace temper
