#include "format/json.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstdint>
#include <nlohmann/json.hpp>

namespace temper {
namespace {

// Deep enough for any real file, shallow enough that the recursive destructor of the document cannot exhaust a stack.
constexpr int kMaxDepth = 256;

// Position of byte `offset` as "line L, column C" (both from 1), or "column C" of a text of one line: `where` knows the
// line of a row.
std::string Position(std::string_view text, size_t offset) {
  const std::string_view before = text.substr(0, std::min(offset, text.size()));
  if (text.find('\n') == text.npos) return fmt::format("column {}", before.size() + 1);
  const auto line = std::count(before.begin(), before.end(), '\n') + 1;
  const size_t start = before.rfind('\n');
  return fmt::format("line {}, column {}", line, before.size() - (start == before.npos ? 0 : start + 1) + 1);
}

template <class J>
class Builder final : public nlohmann::detail::json_sax_dom_parser<J> {
 public:
  using Base = nlohmann::detail::json_sax_dom_parser<J>;
  explicit Builder(J& root) : Base(root, /*allow_exceptions=*/false) {}

  bool start_object(size_t n) { return Deeper() && Base::start_object(n); }
  bool start_array(size_t n) { return Deeper() && Base::start_array(n); }
  bool end_object() { return --depth_, Base::end_object(); }
  bool end_array() { return --depth_, Base::end_array(); }
  template <class Exception>
  bool parse_error(size_t position, const std::string&, const Exception& error) {
    position_ = position;
    what_ = error.what();
    return false;
  }

  bool too_deep() const { return depth_ > kMaxDepth; }
  // The offset of the first byte that does not belong: nlohmann counts what it has read, that byte among it.
  size_t position() const { return std::max<size_t>(position_, 1) - 1; }
  // nlohmann's text after its "[json.exception...] parse error at line 1, column 2: " preamble.
  std::string what() const {
    const size_t colon = what_.find(": ");
    return colon == std::string::npos ? what_ : what_.substr(colon + 2);
  }

 private:
  bool Deeper() { return ++depth_ <= kMaxDepth; }

  int depth_ = 0;
  size_t position_ = 0;
  std::string what_;
};

template <class J>
Result<J> Parse(std::string_view text, const std::string& where) {
  // nlohmann's lexer takes a NUL for the end of the text and would ignore whatever follows it.
  if (const size_t nul = text.find('\0'); nul != text.npos) {
    return Corrupt(fmt::format("{}: not valid JSON at {}: a NUL byte", where, Position(text, nul)));
  }
  J root;
  Builder<J> builder(root);
  if (J::sax_parse(text.begin(), text.end(), &builder)) return root;
  if (builder.too_deep()) return Corrupt(fmt::format("{}: JSON nested deeper than {} levels", where, kMaxDepth));
  return Corrupt(
      fmt::format("{}: not valid JSON at {}: {}", where, Position(text, builder.position()), builder.what()));
}

Status WrongType(const Json& value, const char* key, const char* wanted, const std::string& where) {
  return Corrupt(fmt::format("{}: '{}' should be {} but is {}", where, key, wanted, value.type_name()));
}

}  // namespace

Result<Json> ParseJson(std::string_view text, const std::string& where) {
  return Parse<Json>(text, where);
}
Result<OrderedJson> ParseOrderedJson(std::string_view text, const std::string& where) {
  return Parse<OrderedJson>(text, where);
}

std::string DumpJson(const Json& value, int indent, bool ascii) {
  return value.dump(indent, ' ', ascii, Json::error_handler_t::replace);
}
std::string DumpJson(const OrderedJson& value, int indent, bool ascii) {
  return value.dump(indent, ' ', ascii, OrderedJson::error_handler_t::replace);
}

Result<Json> ReadJsonFile(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
  return ParseJson(text, path);
}

const Json* FindValue(const Json& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}
const OrderedJson* FindValue(const OrderedJson& object, std::string_view key) {
  if (!object.is_object()) return nullptr;
  const auto it = object.find(key);
  return it == object.end() || it->is_null() ? nullptr : &*it;
}

Result<int64_t> IntOr(const Json& object, const char* key, int64_t fallback, const std::string& where) {
  const Json* value = FindValue(object, key);
  if (!value) return fallback;
  if (value->is_number_unsigned() && value->get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return Corrupt(fmt::format("{}: '{}' is {}, which is too large", where, key, value->get<uint64_t>()));
  }
  if (value->is_number_integer()) return value->get<int64_t>();
  return WrongType(*value, key, "an integer", where);
}
Result<double> NumberOr(const Json& object, const char* key, double fallback, const std::string& where) {
  const Json* value = FindValue(object, key);
  if (!value) return fallback;
  if (value->is_number()) return value->get<double>();
  return WrongType(*value, key, "a number", where);
}
Result<bool> BoolOr(const Json& object, const char* key, bool fallback, const std::string& where) {
  const Json* value = FindValue(object, key);
  if (!value) return fallback;
  if (value->is_boolean()) return value->get<bool>();
  return WrongType(*value, key, "true or false", where);
}
Result<std::string> StringOr(const Json& object, const char* key, std::string fallback, const std::string& where) {
  const Json* value = FindValue(object, key);
  if (!value) return fallback;
  if (value->is_string()) return value->get<std::string>();
  return WrongType(*value, key, "a string", where);
}
Result<int64_t> RequireInt(const Json& object, const char* key, const std::string& where) {
  if (!FindValue(object, key)) return Corrupt(fmt::format("{}: '{}' is missing", where, key));
  return IntOr(object, key, 0, where);
}

}  // namespace temper
