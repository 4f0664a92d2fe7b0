#include "model/words_key.h"

#include <fmt/core.h>

#include <nlohmann/json.hpp>

namespace temper {

Result<std::string> WordsKey(const OrderedJson& config, int64_t words, const std::string& where) {
  for (const char* key : {"/text_config/vocab_size", "/vocab_size"}) {
    const OrderedJson::json_pointer at(key);
    if (config.contains(at) && config[at] == words) return std::string(key);
  }
  if (!config.contains("text_config") && !config.contains("vocab_size")) return std::string("/vocab_size");
  return Unsupported(
      fmt::format("{}: vocab_size is not the {} words that the model has: tokens cannot be added", where, words));
}

}  // namespace temper
