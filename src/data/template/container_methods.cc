// The methods of Python's list, tuple, dict and numbers that do not change their object.
#include <fmt/core.h>

#include <cmath>

#include "data/template/access.h"
#include "data/template/parameters.h"

namespace temper::jinja {
namespace {

Value DictGet(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("get", arguments, {"key", "default"}, 1);
  if (!IsHashable(p[0])) Fail(fmt::format("unhashable type: '{}'", TypeName(p[0])));
  const Value* found = self.dict().Find(p[0]);
  return found ? *found : p.Or(1, Value());
}

template <char kind>
Value DictViewMethod(Interpreter&, const Value& self, const Arguments&) {
  return Value::DictView(self, kind);
}

Value Copy(Interpreter&, const Value& self, const Arguments&) {
  return self;
}

Value CountItems(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("count", arguments, {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : Elements(self)) count += Equal(item, p[0]);
  return Value::Int(count);
}

Value IndexOf(Interpreter&, const Value& self, const Arguments& arguments) {
  const Parameters p("index", arguments, {"value", "start", "stop"}, 1);
  const Elements elements(self);
  const auto n = static_cast<int64_t>(elements->size());
  const auto bound = [&](int64_t i) { return std::min(i < 0 ? std::max<int64_t>(i + n, 0) : i, n); };
  for (int64_t i = bound(p.Int(1, 0)); i < bound(p.Int(2, n)); ++i) {
    if (Equal((*elements)[static_cast<size_t>(i)], p[0])) return Value::Int(i);
  }
  Fail(fmt::format("{} is not in {}", Repr(p[0]), TypeName(self)));
}

}  // namespace

MethodFunction FindContainerMethod(Type type, std::string_view name) {
  switch (type) {
    case Type::kDict:
      if (name == "get") return DictGet;
      if (name == "items") return DictViewMethod<'i'>;
      if (name == "keys") return DictViewMethod<'k'>;
      if (name == "values") return DictViewMethod<'v'>;
      if (name == "copy") return Copy;
      return nullptr;
    case Type::kList:
      if (name == "copy") return Copy;
      [[fallthrough]];
    case Type::kTuple:
    case Type::kRange:
      if (name == "count") return CountItems;
      if (name == "index") return IndexOf;
      return nullptr;
    default:
      return nullptr;
  }
}

}  // namespace temper::jinja
