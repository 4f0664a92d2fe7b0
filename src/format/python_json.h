// JSON as Python's json module writes it: a number may be NaN, Infinity or -Infinity, which JSON lacks. In files of
// models they are read as {"__float__": "Infinity"}, which transformers 5 writes in their place.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"
#include "format/json.h"

namespace temper {

// `text` with as(name) in the place of each of those numbers; nullopt if it has none.
std::optional<std::string> ReplaceNonFinite(std::string_view text,
                                            const std::function<std::string(std::string_view name)>& as);

// `where` names the document in errors, as in ParseJson.
Result<Json> ParsePythonJson(std::string_view text, const std::string& where);
Result<OrderedJson> ParseOrderedPythonJson(std::string_view text, const std::string& where);
Result<Json> ReadPythonJsonFile(Env& env, const std::string& path);

// The lines of `json`, indented by two, in the form of `source`, the text of which it was made: bare numbers if it has
// them.
std::string PrintPythonJson(OrderedJson json, std::string_view source);

}  // namespace temper
