// What a chat template needs of a tokenizer: markers such as <|im_start|>, each of them one token.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "data/template/chat_template.h"
#include "data/tokenizer/tokenizer.h"

namespace temper {

// The special token with which the template ends the assistant's turns; nullopt if it ends them with other text.
std::optional<int32_t> TurnEndToken(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

// The markers that the template prints around turns and that the tokenizer splits into several tokens.
std::vector<std::string> MarkersWithoutToken(const ChatTemplate& chat_template, const Tokenizer& tokenizer);

}  // namespace temper
