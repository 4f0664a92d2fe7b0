// JSON as Temper reads it: untrusted. Parsing never throws, reports errors by line and column, and refuses documents
// nested too deeply for the stack. Typed lookups return errors that name the key.
//
// Json keeps objects in a std::map (fast to build: tokenizer.json has 10^5 keys); OrderedJson keeps the file's order
// (chat templates print it), but inserting n keys costs O(n^2): use it for rows of data, not for vocabularies.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>

#include "base/env.h"
#include "base/status.h"

namespace temper {

using Json = nlohmann::json;
using OrderedJson = nlohmann::ordered_json;

// `where` names the document in errors: a path, or "data.jsonl line 12". Duplicate keys: the last one wins.
Result<Json> ParseJson(std::string_view text, const std::string& where);
Result<OrderedJson> ParseOrderedJson(std::string_view text, const std::string& where);
Result<Json> ReadJsonFile(Env& env, const std::string& path);

// The text of a value; bytes that are no UTF-8 become U+FFFD. `indent`: spaces of a level; -1: all in one line.
// `ascii`: other characters are escaped. Compiled once here: nlohmann's own dump() is compiled wherever it is called.
std::string DumpJson(const Json& value, int indent = -1, bool ascii = false);
std::string DumpJson(const OrderedJson& value, int indent = -1, bool ascii = false);

// Lookups in an object. Absent or null gives `fallback`; a value of another type is an error naming `where` and `key`.
Result<int64_t> IntOr(const Json& object, const char* key, int64_t fallback, const std::string& where);
Result<double> NumberOr(const Json& object, const char* key, double fallback, const std::string& where);
Result<bool> BoolOr(const Json& object, const char* key, bool fallback, const std::string& where);
Result<std::string> StringOr(const Json& object, const char* key, std::string fallback, const std::string& where);
// nullptr where it is absent or null, or where this is no object.
const Json* FindValue(const Json& object, std::string_view key);
const OrderedJson* FindValue(const OrderedJson& object, std::string_view key);
// As above, but absence is an error too.
Result<int64_t> RequireInt(const Json& object, const char* key, const std::string& where);

}  // namespace temper
