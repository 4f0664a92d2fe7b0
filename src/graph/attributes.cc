#include "graph/attributes.h"

#include <fmt/core.h>

#include <algorithm>
#include <charconv>

namespace temper {
namespace {

// A double always shows a '.', an exponent or a name (inf, nan), so that it reads back as a double.
std::string DoubleText(double d) {
  std::string text = fmt::format("{}", d);
  if (text.find_first_of(".eni") == std::string::npos) text += ".0";
  return text;
}

// Cursor over the text form; see ToString for the grammar.
struct Reader {
  std::string_view rest;

  bool Eat(char c) {
    if (rest.empty() || rest.front() != c) return false;
    rest.remove_prefix(1);
    return true;
  }
  std::string_view Until(std::string_view stops) {
    const size_t n = std::min(rest.find_first_of(stops), rest.size());
    const std::string_view token = rest.substr(0, n);
    rest.remove_prefix(n);
    return token;
  }
};

bool IsKey(std::string_view text) {
  return !text.empty() && std::all_of(text.begin(), text.end(), [](unsigned char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  });
}

bool IsPlain(std::string_view text) {
  return std::all_of(text.begin(), text.end(),
                     [](unsigned char c) { return c >= ' ' && c <= '~' && c != '"' && c != '}'; });
}

bool ParseNumber(std::string_view token, double* out) {
  const auto r = std::from_chars(token.data(), token.data() + token.size(), *out);
  return r.ec == std::errc() && r.ptr == token.data() + token.size();
}

bool ParseValue(Reader& in, AttributeValue* out) {
  if (in.Eat('"')) {
    const std::string_view text = in.Until("\"");
    *out = std::string(text);
    return IsPlain(text) && in.Eat('"');
  }
  if (in.Eat('[')) {
    std::vector<double> list;
    while (!in.Eat(']')) {
      if (!list.empty() && !(in.Eat(',') && in.Eat(' '))) return false;
      double d = 0;
      if (!ParseNumber(in.Until(",]"), &d)) return false;
      list.push_back(d);
    }
    *out = std::move(list);
    return true;
  }
  const std::string_view token = in.Until(",}");
  if (token.find_first_of(".eni") != std::string_view::npos) {
    double d = 0;
    if (!ParseNumber(token, &d)) return false;
    *out = d;
    return true;
  }
  int64_t i = 0;
  const auto r = std::from_chars(token.data(), token.data() + token.size(), i);
  *out = i;
  return r.ec == std::errc() && r.ptr == token.data() + token.size();
}

}  // namespace

const Attributes::Entries& Attributes::None() {
  static const Entries none;
  return none;
}

Attributes::Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> entries) {
  for (const auto& [key, value] : entries) Set(key, value);
}

void Attributes::Set(std::string key, AttributeValue value) {
  const auto* text = std::get_if<std::string>(&value);
  TEMPER_CHECK(IsKey(key) && (text == nullptr || IsPlain(*text))) << "attribute " << key << " cannot be printed";
  if (entries_ == nullptr || entries_.use_count() > 1) entries_ = std::make_shared<Entries>(entries());
  const auto at = std::lower_bound(entries_->begin(), entries_->end(), key,
                                   [](const auto& entry, const std::string& k) { return entry.first < k; });
  if (at != entries_->end() && at->first == key) {
    at->second = std::move(value);
  } else {
    entries_->emplace(at, std::move(key), std::move(value));
  }
}

const AttributeValue* Attributes::Find(std::string_view key) const {
  for (const auto& [k, value] : entries()) {
    if (k == key) return &value;
  }
  return nullptr;
}

namespace {
template <class T>
const T& Get(const AttributeValue* value, std::string_view key, const Attributes& all) {
  TEMPER_CHECK(value != nullptr && std::holds_alternative<T>(*value))
      << "attribute " << key << " of " << all.ToString();
  return std::get<T>(*value);
}
}  // namespace

int64_t Attributes::Int(std::string_view key) const {
  return Get<int64_t>(Find(key), key, *this);
}
int64_t Attributes::IntOr(std::string_view key, int64_t fallback) const {
  const AttributeValue* const value = Find(key);
  return value != nullptr ? Get<int64_t>(value, key, *this) : fallback;
}
double Attributes::Double(std::string_view key) const {
  return Get<double>(Find(key), key, *this);
}
double Attributes::DoubleOr(std::string_view key, double fallback) const {
  const AttributeValue* const value = Find(key);
  return value != nullptr ? Get<double>(value, key, *this) : fallback;
}
const std::string& Attributes::String(std::string_view key) const {
  return Get<std::string>(Find(key), key, *this);
}
const std::vector<double>& Attributes::Doubles(std::string_view key) const {
  return Get<std::vector<double>>(Find(key), key, *this);
}

std::string Attributes::ToString() const {
  std::string text = "{";
  for (const auto& [key, value] : entries()) {
    if (text.size() > 1) text += ", ";
    text += key + "=";
    if (const auto* i = std::get_if<int64_t>(&value)) {
      text += std::to_string(*i);
    } else if (const auto* d = std::get_if<double>(&value)) {
      text += DoubleText(*d);
    } else if (const auto* s = std::get_if<std::string>(&value)) {
      text += '"' + *s + '"';
    } else {
      text += '[';
      const auto& list = std::get<std::vector<double>>(value);
      for (size_t k = 0; k < list.size(); ++k) text += (k ? ", " : "") + DoubleText(list[k]);
      text += ']';
    }
  }
  return text + "}";
}

Result<Attributes> Attributes::Parse(std::string_view text) {
  Reader in{text};
  Attributes attributes;
  bool good = in.Eat('{');
  for (bool first = true; good && !in.Eat('}'); first = false) {
    good = first || (in.Eat(',') && in.Eat(' '));
    const std::string key(in.Until("="));
    AttributeValue value;
    good = good && IsKey(key) && !attributes.Has(key) && in.Eat('=') && ParseValue(in, &value);
    if (good) attributes.Set(key, std::move(value));
  }
  if (!good || !in.rest.empty()) return Corrupt(fmt::format("not a list of attributes: {}", text));
  return attributes;
}

}  // namespace temper
