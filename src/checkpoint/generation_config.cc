#include "checkpoint/generation_config.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "format/python_json.h"

namespace temper {
namespace {

Result<OrderedJson> ReadObject(Env& env, const std::string& path) {
  if (!env.IsFile(path)) return OrderedJson(OrderedJson::object());
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, MiB(64)));
  TEMPER_ASSIGN_OR_RETURN(OrderedJson json, ParseOrderedPythonJson(text, path));
  if (!json.is_object()) return Corrupt(path + ": should be a JSON object");
  return json;
}

}  // namespace

Result<std::optional<std::string>> GenerationConfigStoppingAt(Env& env, const std::string& model_folder, int32_t id) {
  TEMPER_ASSIGN_OR_RETURN(OrderedJson generation, ReadObject(env, JoinPath(model_folder, kGenerationConfigFile)));
  // Without this file transformers takes these from config.json.
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson model, ReadObject(env, JoinPath(model_folder, "config.json")));
  for (const char* key : {"bos_token_id", "eos_token_id", "pad_token_id"}) {
    if (!generation.contains(key) && model.contains(key)) generation[key] = model[key];
  }
  OrderedJson& ends = generation["eos_token_id"];
  if (ends.is_number_integer()) ends = OrderedJson::array({ends});
  if (!ends.is_array()) ends = OrderedJson::array();
  if (std::find(ends.begin(), ends.end(), OrderedJson(id)) != ends.end()) return std::optional<std::string>();
  ends.push_back(id);
  return std::optional(generation.dump(2) + "\n");
}

}  // namespace temper
