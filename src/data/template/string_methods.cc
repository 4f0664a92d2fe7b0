// The methods of Python's str.
#include <fmt/core.h>

#include <cstring>

#include "data/template/access.h"
#include "data/template/format.h"
#include "data/template/parameters.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

// A result of the same kind: a method of Markup gives Markup.
Value Like(const Value& self, std::string text) {
  return Value::String(std::move(text), self.markup());
}

template <std::string (*transform)(std::string_view)>
Value Transform(Interpreter&, const Value& self, const Arguments&) {
  Budget::Charge(4 * static_cast<int64_t>(self.text().size()));
  return Like(self, transform(self.text()));
}

template <bool left, bool right>
Value StripMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("strip", arguments, {"chars"});
  const std::string_view chars = p.HasNotNone(0) ? std::string_view(p.Text(0)) : std::string_view();
  // Each character is looked up in the set.
  Budget::Charge(static_cast<int64_t>(self.text().size()) + static_cast<int64_t>(chars.size()));
  if (chars.size() > 256) Budget::Step(static_cast<int64_t>(self.text().size() * (chars.size() / 64)));
  return Like(self, std::string(Strip(self.text(), p.HasNotNone(0) ? &chars : nullptr, left, right)));
}

template <bool from_right>
Value Split(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("split", arguments, {"sep", "maxsplit"});
  const int64_t limit = p.Int(1, -1);
  std::vector<std::string_view> parts = p.HasNotNone(0) ? SplitText(self.text(), p.Text(0), limit, from_right)
                                                        : SplitSpace(self.text(), limit, from_right);
  std::vector<Value> out;
  out.reserve(parts.size());
  for (std::string_view part : parts) out.push_back(Like(self, std::string(part)));
  return Value::List(std::move(out));
}

Value SplitLinesMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("splitlines", arguments, {"keepends"});
  std::vector<Value> out;
  for (std::string_view line : jinja::SplitLines(self.text(), p.Flag(0, false))) {
    out.push_back(Like(self, std::string(line)));
  }
  return Value::List(std::move(out));
}

template <bool from_right>
Value Partition(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("partition", arguments, {"sep"}, 1);
  const std::string& separator = p.Text(0);
  if (separator.empty()) Fail("empty separator");
  const std::string_view text = self.text();
  const size_t at = from_right ? FindLast(text, separator) : FindFirst(text, separator, 0);
  const auto piece = [&](std::string_view s) { return Like(self, std::string(s)); };
  if (at == text.npos) {
    return from_right ? Value::Tuple({piece(""), piece(""), piece(text)})
                      : Value::Tuple({piece(text), piece(""), piece("")});
  }
  return Value::Tuple({piece(text.substr(0, at)), piece(separator), piece(text.substr(at + separator.size()))});
}

// The bytes of self between the code point indices given as arguments `first` and `first` + 1, and where they start.
struct Window {
  std::string_view text;
  size_t offset;
  bool valid;  // false where start lies beyond the end
};
Window WindowOf(const Value& self, const Parameters& p, size_t first) {
  const int64_t length = self.text_length();
  const auto index = [&](size_t i, int64_t fallback) {
    if (!p.HasNotNone(i)) return fallback;
    const int64_t v = p.Int(i, 0);
    return v < 0 ? std::max<int64_t>(v + length, 0) : v;
  };
  const int64_t start = index(first, 0), stop = std::min(index(first + 1, length), length);
  const std::string_view text = self.text();
  if (start > length || start > stop) return {{}, text.size(), false};
  const size_t begin = ByteOffset(text, start);
  return {text.substr(begin, ByteOffset(text.substr(begin), stop - start)), begin, true};
}

template <bool at_end>
Value StartsOrEndsWith(Interpreter&, const Value& self, const Arguments& arguments) {
  const char* name = at_end ? "endswith" : "startswith";
  const Parameters p(name, arguments, {"prefix", "start", "end"}, 1);
  const Window window = WindowOf(self, p, 1);
  const auto matches = [&](const Value& affix) {
    RequireDefined(affix);
    if (!affix.IsString()) {
      Fail(fmt::format("{} first arg must be str or a tuple of str, not {}", name, TypeName(affix)));
    }
    Budget::Charge(static_cast<int64_t>(affix.text().size()));
    return window.valid && (at_end ? window.text.ends_with(affix.text()) : window.text.starts_with(affix.text()));
  };
  if (!p[0].Is(Type::kTuple)) return Value::Bool(matches(p[0]));
  for (const Value& affix : p[0].items()) {
    if (matches(affix)) return Value::Bool(true);
  }
  return Value::Bool(false);
}

template <bool from_right, bool must_exist>
Value Find(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("find", arguments, {"sub", "start", "end"}, 1);
  const Window window = WindowOf(self, p, 1);
  const std::string& wanted = p.Text(0);
  size_t at = std::string_view::npos;
  if (window.valid) at = from_right ? FindLast(window.text, wanted) : FindFirst(window.text, wanted, 0);
  if (at != std::string_view::npos) {
    return Value::Int(CountCodePoints(std::string_view(self.text()).substr(0, window.offset + at)));
  }
  if (must_exist) Fail("substring not found");
  return Value::Int(-1);
}

Value Count(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"sub", "start", "end"}, 1);
  const Window window = WindowOf(self, p, 1);
  if (!window.valid) return Value::Int(0);
  return Value::Int(CountText(window.text, p.Text(0)));
}

Value Replace(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("replace", arguments, {"old", "new", "count"}, 2);
  return Like(self, ReplaceText(self.text(), p.Text(0), p.Text(1), p.Int(2, -1)));
}

Value RemovePrefix(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("removeprefix", arguments, {"prefix"}, 1);
  return Like(self, self.text().starts_with(p.Text(0)) ? self.text().substr(p.Text(0).size()) : self.text());
}
Value RemoveSuffix(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("removesuffix", arguments, {"suffix"}, 1);
  const bool has = self.text().ends_with(p.Text(0));
  return Like(self, has ? self.text().substr(0, self.text().size() - p.Text(0).size()) : self.text());
}

Value Join(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("join", arguments, {"iterable"}, 1);
  std::string out;
  const Elements elements(p[0]);
  for (size_t i = 0; i < elements->size(); ++i) {
    const Value& item = (*elements)[i];
    if (!item.IsString()) {
      Fail(fmt::format("sequence item {}: expected str instance, {} found", i, TypeName(item)));
    }
    if (i > 0) AppendText(out, self.text());
    AppendText(out, self.markup() && !item.markup() ? EscapeHtml(item.text()) : item.text());
  }
  return Like(self, std::move(out));
}

// Every character satisfies it, and there is one.
template <bool (*predicate)(char32_t)>
Value AllAre(Interpreter&, const Value& self, const Arguments&) {
  const std::string& text = self.text();
  Budget::Charge(static_cast<int64_t>(text.size()) * 8);
  for (size_t at = 0; at < text.size();) {
    if (!predicate(NextCodePoint(text, at))) return Value::Bool(false);
  }
  return Value::Bool(!text.empty());
}

Value IsUpperMethod(Interpreter&, const Value& self, const Arguments&) {
  Budget::Charge(static_cast<int64_t>(self.text().size()) * 8);
  return Value::Bool(IsUpperText(self.text()));
}
Value IsLowerMethod(Interpreter&, const Value& self, const Arguments&) {
  Budget::Charge(static_cast<int64_t>(self.text().size()) * 8);
  return Value::Bool(IsLowerText(self.text()));
}
Value FormatMethod(Interpreter&, const Value& self, const Arguments& arguments) {
  return Format(self, arguments);
}
}  // namespace

MethodFunction FindStringMethod(std::string_view name) {
  static const std::unordered_map<std::string_view, MethodFunction> kMethods = {
      {"capitalize", Transform<Capitalize>},
      {"count", Count},
      {"endswith", StartsOrEndsWith<true>},
      {"find", Find<false, false>},
      {"format", FormatMethod},
      {"index", Find<false, true>},
      {"isalnum", AllAre<IsAlnum>},
      {"isalpha", AllAre<IsAlpha>},
      {"isdigit", AllAre<IsDigit>},
      {"islower", IsLowerMethod},
      {"isspace", AllAre<IsSpace>},
      {"isupper", IsUpperMethod},
      {"join", Join},
      {"lower", Transform<Lower>},
      {"lstrip", StripMethod<true, false>},
      {"partition", Partition<false>},
      {"removeprefix", RemovePrefix},
      {"removesuffix", RemoveSuffix},
      {"replace", Replace},
      {"rfind", Find<true, false>},
      {"rindex", Find<true, true>},
      {"rpartition", Partition<true>},
      {"rsplit", Split<true>},
      {"rstrip", StripMethod<false, true>},
      {"split", Split<false>},
      {"splitlines", SplitLinesMethod},
      {"startswith", StartsOrEndsWith<false>},
      {"strip", StripMethod<true, true>},
      {"title", Transform<TitleCase>},
      {"upper", Transform<Upper>},
  };
  const auto it = kMethods.find(name);
  return it == kMethods.end() ? nullptr : it->second;
}

}  // namespace temper::jinja
