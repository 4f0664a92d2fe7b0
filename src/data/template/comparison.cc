#include "data/template/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

namespace temper::jinja {

bool IsHashable(const Value& v) {
  Budget::Step();
  switch (v.type()) {
    case Type::kList:
    case Type::kDict:
    case Type::kDictView:
      return false;
    case Type::kTuple:
      return std::all_of(v.items().begin(), v.items().end(), IsHashable);
    default:
      return true;
  }
}

uint64_t HashOf(const Value& v) {
  Budget::Step();
  switch (v.type()) {
    case Type::kNone:
      return 1;
    case Type::kUndefined:
      return 2;
    case Type::kBool:
    case Type::kInt:
      return std::hash<double>()(static_cast<double>(v.integer()));
    case Type::kFloat:
      return std::hash<double>()(v.number());
    case Type::kString:
      Budget::Charge(static_cast<int64_t>(v.text().size()));
      return std::hash<std::string>()(v.text());
    case Type::kTuple: {
      uint64_t hash = v.items().size();
      for (const Value& item : v.items()) hash = hash * 0x9e3779b97f4a7c15ull + HashOf(item);
      return hash;
    }
    case Type::kRange:
      return static_cast<uint64_t>(v.range().size());
    case Type::kIterator:
    case Type::kNative:
      return std::hash<const void*>()(v.identity());
    default:
      Fail(fmt::format("unhashable type: '{}'", TypeName(v)));
  }
}

namespace {

bool EqualItems(const std::vector<Value>& a, const std::vector<Value>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if (!Equal(a[i], b[i])) return false;
  }
  return true;
}

bool EqualDicts(const DictObject& a, const DictObject& b) {
  if (a.entries.size() != b.entries.size()) return false;
  for (const auto& [key, value] : a.entries) {
    const Value* other = b.Find(key);
    if (!other || !Equal(value, *other)) return false;
  }
  return true;
}

// Exact, like Python: compares a double with an integer that a double may not hold.
int CompareIntFloat(int64_t i, double d) {
  if (d >= 0x1p63) return -1;
  if (d < -0x1p63) return 1;
  const auto whole = static_cast<int64_t>(d);
  if (i != whole) return i < whole ? -1 : 1;
  const double rest = d - static_cast<double>(whole);
  return rest > 0 ? -1 : rest < 0 ? 1 : 0;
}

}  // namespace

bool Equal(const Value& a, const Value& b) {
  Budget::Step();
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer() == b.integer();
    if (a.Is(Type::kFloat) && b.Is(Type::kFloat)) return a.number() == b.number();
    const double d = a.IsInteger() ? b.number() : a.number();
    return !std::isnan(d) && CompareIntFloat(a.IsInteger() ? a.integer() : b.integer(), d) == 0;
  }
  if (a.type() != b.type()) return false;
  if (a.identity() && a.identity() == b.identity()) return true;
  switch (a.type()) {
    case Type::kUndefined:
    case Type::kNone:
      return true;
    case Type::kString:
      if (a.text().size() != b.text().size()) return false;
      Budget::Charge(static_cast<int64_t>(a.text().size()));
      return a.text() == b.text();
    case Type::kList:
    case Type::kTuple:
      return EqualItems(a.items(), b.items());
    case Type::kDict:
      return EqualDicts(a.dict(), b.dict());
    case Type::kDictView:
      if (a.view().kind == 'v' || a.view().kind != b.view().kind) return false;
      if (a.view().kind == 'i') return EqualDicts(*a.view().dict, *b.view().dict);
      return a.view().dict->entries.size() == b.view().dict->entries.size() &&
             std::all_of(a.view().dict->entries.begin(), a.view().dict->entries.end(),
                         [&](const auto& e) { return b.view().dict->Find(e.first) != nullptr; });
    case Type::kRange:
      return EqualItems(*Elements(a), *Elements(b));
    default:
      return false;
  }
}

bool Less(const Value& a, const Value& b, const char* op) {
  Budget::Step();
  RequireDefined(a);
  RequireDefined(b);
  if (a.IsNumber() && b.IsNumber()) {
    if (a.IsInteger() && b.IsInteger()) return a.integer() < b.integer();
    if (a.Is(Type::kFloat) && b.Is(Type::kFloat)) return a.number() < b.number();
    if (std::isnan(a.number()) || std::isnan(b.number())) return false;
    return a.IsInteger() ? CompareIntFloat(a.integer(), b.number()) < 0 : CompareIntFloat(b.integer(), a.number()) > 0;
  }
  if (a.IsString() && b.IsString()) {
    Budget::Charge(static_cast<int64_t>(std::min(a.text().size(), b.text().size())));
    return a.text() < b.text();  // the order of UTF-8 bytes is the order of code points
  }
  if (a.IsSequence() && a.type() == b.type()) {
    const size_t shared = std::min(a.items().size(), b.items().size());
    for (size_t i = 0; i < shared; ++i) {
      if (!Equal(a.items()[i], b.items()[i])) return Less(a.items()[i], b.items()[i], op);
    }
    return a.items().size() < b.items().size();
  }
  Fail(fmt::format("'{}' not supported between instances of '{}' and '{}'", op, TypeName(a), TypeName(b)));
}

bool Contains(const Value& container, const Value& item) {
  switch (container.type()) {
    case Type::kUndefined:
      return false;
    case Type::kString: {
      if (!item.IsString()) {
        Fail(fmt::format("'in <string>' requires string as left operand, not {}", TypeName(item)));
      }
      const std::string& text = container.text();
      Budget::Charge(static_cast<int64_t>(text.size()));
      return item.text().empty() || memmem(text.data(), text.size(), item.text().data(), item.text().size());
    }
    case Type::kDict:
      if (!IsHashable(item)) Fail(fmt::format("unhashable type: '{}'", TypeName(item)));
      return container.dict().Find(item) != nullptr;
    default:
      break;
  }
  if (!IsIterable(container)) Fail(fmt::format("argument of type '{}' is not iterable", TypeName(container)));
  const Elements elements(container);
  return std::any_of(elements->begin(), elements->end(), [&](const Value& v) { return Equal(v, item); });
}

}  // namespace temper::jinja
