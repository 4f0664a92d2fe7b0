// Where a config.json has the number of its model's words.
#pragma once

#include <cstdint>
#include <string>

#include "format/json.h"

namespace temper {

// A JSON pointer. kUnsupported where the file says another number than `words`, which the model has. `where`: the file.
Result<std::string> WordsKey(const OrderedJson& config, int64_t words, const std::string& where);

}  // namespace temper
