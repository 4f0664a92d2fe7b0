#include "data/template/access.h"

#include <fmt/core.h>

#include <algorithm>

#include "base/utf8.h"
#include "data/template/interpreter.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

bool ChangesItsObject(const Value& of, std::string_view name) {
  const auto is_any = [&](std::initializer_list<std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (of.Is(Type::kList)) {
    return is_any({"append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"});
  }
  return of.Is(Type::kDict) && is_any({"clear", "pop", "popitem", "setdefault", "update"});
}

// A method or a real attribute; nullopt where Python would raise AttributeError.
std::optional<Value> FindAttribute(const Value& of, std::string_view name) {
  if (ChangesItsObject(of, name) || (name.starts_with("__") && name.ends_with("__") && name.size() > 4)) {
    return Value::UndefinedHint(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, TypeName(of)));
  }
  if (of.Is(Type::kNative)) return of.native().Attribute(name);
  if (const MethodFunction method = FindMethod(of, name)) {
    auto function = std::make_shared<FunctionObject>(
        std::string(name),
        [of, method](Interpreter& interpreter, Arguments arguments) { return method(interpreter, of, arguments); });
    function->nesting = of.nesting() + 1;
    return Value::Native(std::move(function));
  }
  return std::nullopt;
}

// of[key]; nullopt where Python would raise TypeError or LookupError.
std::optional<Value> FindItem(const Value& of, const Value& key) {
  switch (of.type()) {
    case Type::kDict: {
      if (!IsHashable(key)) return std::nullopt;
      const Value* found = of.dict().Find(key);
      return found ? std::optional<Value>(*found) : std::nullopt;
    }
    case Type::kString:
    case Type::kList:
    case Type::kTuple:
    case Type::kRange: {
      if (!key.IsInteger()) return std::nullopt;
      const int64_t length = *Length(of);
      const int64_t i = key.integer() < 0 ? key.integer() + length : key.integer();
      if (i < 0 || i >= length) return std::nullopt;
      if (of.IsSequence()) return of.items()[static_cast<size_t>(i)];
      if (of.Is(Type::kRange)) return Value::Int(of.range().start + i * of.range().step);
      const std::string& text = of.text();
      Budget::Charge(static_cast<int64_t>(text.size()));
      const bool ascii = length == static_cast<int64_t>(text.size());
      const size_t begin = ascii ? static_cast<size_t>(i) : ByteOffset(text, i);
      size_t end = begin;
      NextCodePoint(text, end);
      return Value::String(text.substr(begin, end - begin), of.markup());
    }
    default:
      return std::nullopt;
  }
}

// The indices that a Python slice visits: first, count and step.
struct SliceIndices {
  int64_t first, count, step;
};

SliceIndices Resolve(const Value& start, const Value& stop, const Value& step, int64_t length) {
  const auto index = [](const Value& v) {
    RequireDefined(v);
    if (!v.IsInteger()) Fail("slice indices must be integers or None or have an __index__ method");
    return v.integer();
  };
  const int64_t by = step.IsNone() ? 1 : index(step);
  if (by == 0) Fail("slice step cannot be zero");
  const int64_t low = by > 0 ? 0 : -1, high = by > 0 ? length : length - 1;
  const auto bound = [&](const Value& v, int64_t fallback) {
    if (v.IsNone()) return fallback;
    const int64_t i = index(v);
    return std::clamp(i < 0 ? (i < -length ? low - 1 : i + length) : i, low, high);
  };
  const int64_t from = bound(start, by > 0 ? low : high), to = bound(stop, by > 0 ? high : low);
  int64_t count = 0;
  if (by > 0 && from < to) count = (to - from - 1) / by + 1;
  if (by < 0 && from > to) count = by < -length ? 1 : (from - to - 1) / -by + 1;
  return {from, count, by};
}

}  // namespace

MethodFunction FindMethod(const Value& of, std::string_view name) {
  return of.IsString() ? FindStringMethod(name) : FindContainerMethod(of.type(), name);
}

Value GetAttribute(const Value& of, const Value& name) {
  RequireDefined(of);
  if (auto found = FindAttribute(of, name.text())) return *std::move(found);
  if (auto found = FindItem(of, name)) return *std::move(found);
  return Value::UndefinedAttribute(of, name);
}

Value GetItem(const Value& of, const Value& key) {
  RequireDefined(of);
  if (auto found = FindItem(of, key)) return *std::move(found);
  if (key.IsString()) {
    if (auto found = FindAttribute(of, key.text())) return *std::move(found);
  }
  return Value::UndefinedAttribute(of, key);
}

Value GetSlice(const Value& of, const Value& start, const Value& stop, const Value& step) {
  RequireDefined(of);
  if (!of.IsString() && !of.IsSequence() && !of.Is(Type::kRange)) {
    Fail(fmt::format("'{}' object is not subscriptable by a slice", TypeName(of)));
  }
  const auto [first, count, by] = Resolve(start, stop, step, *Length(of));
  Budget::Step(count);
  if (of.Is(Type::kRange)) {
    const RangeObject& range = of.range();
    const int64_t begin = range.start + first * range.step, stride = range.step * by;
    return Value::Range(begin, begin + count * stride, stride);
  }
  if (of.IsSequence()) {
    Budget::Charge(count * static_cast<int64_t>(sizeof(Value)));
    std::vector<Value> out;
    out.reserve(static_cast<size_t>(count));
    for (int64_t i = 0; i < count; ++i) out.push_back(of.items()[static_cast<size_t>(first + i * by)]);
    return of.Is(Type::kList) ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
  }
  const std::string& text = of.text();
  Budget::Charge(static_cast<int64_t>(text.size()));
  if (count == 0) return Value::String("", of.markup());
  if (by == 1) {
    const bool ascii = of.text_length() == static_cast<int64_t>(text.size());
    const size_t begin = ascii ? static_cast<size_t>(first) : ByteOffset(text, first);
    const size_t size = ascii ? static_cast<size_t>(count) : ByteOffset(std::string_view(text).substr(begin), count);
    return Value::String(text.substr(begin, size), of.markup());
  }
  Budget::Charge(4 * static_cast<int64_t>(text.size()));
  const std::u32string points = ToCodePoints(text);
  std::string out;
  for (int64_t i = 0; i < count; ++i) utf8::Append(out, points[static_cast<size_t>(first + i * by)]);
  return Value::String(std::move(out), of.markup());
}

}  // namespace temper::jinja
