#include "checkpoint/generation_config.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>

#include "format/json.h"
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
  return std::optional(DumpJson(generation, 2) + "\n");
}

Result<GenerationDefaults> ReadGenerationDefaults(Env& env, const std::string& model_folder) {
  const std::string path = JoinPath(model_folder, kGenerationConfigFile);
  TEMPER_ASSIGN_OR_RETURN(const OrderedJson json, ReadObject(env, path));
  GenerationDefaults defaults;
  Status fault = OkStatus();
  const auto find = [&](const char* key, bool is_right, auto take) {
    const auto at = json.find(key);
    if (at == json.end() || at->is_null()) return;
    if (is_right) return take(*at);
    fault = Corrupt(fmt::format("{}: {} is {}", path, key, DumpJson(*at)));
  };
  const auto number = [&](const char* key, double least, double most, auto take) {
    const auto at = json.find(key);
    const bool right = at != json.end() && at->is_number() && at->get<double>() >= least && at->get<double>() <= most;
    find(key, right, take);
  };
  constexpr double kMost = std::numeric_limits<int32_t>::max();
  find("do_sample", json.contains("do_sample") && json["do_sample"].is_boolean(),
       [&](const OrderedJson& value) { defaults.samples = value.get<bool>(); });
  number("temperature", 0, kMost, [&](const OrderedJson& value) { defaults.temperature = value.get<double>(); });
  number("top_k", 0, kMost, [&](const OrderedJson& value) { defaults.top_k = value.get<int64_t>(); });
  number("top_p", 0, 1, [&](const OrderedJson& value) { defaults.top_p = value.get<double>(); });
  number("min_p", 0, 1, [&](const OrderedJson& value) { defaults.min_p = value.get<double>(); });
  number("repetition_penalty", std::numeric_limits<double>::min(), kMost,
         [&](const OrderedJson& value) { defaults.repetition_penalty = value.get<double>(); });
  TEMPER_RETURN_IF_ERROR(fault);
  if (defaults.samples && !defaults.top_k) defaults.top_k = 50;
  return defaults;
}

}  // namespace temper
