// Base64 as JSON and text files hold it: the standard alphabet, padded with '=' or not.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace temper {

// The bytes; nullopt if `text` has any other character or cannot end where it does. Pure; any thread.
std::optional<std::string> DecodeBase64(std::string_view text);

}  // namespace temper
