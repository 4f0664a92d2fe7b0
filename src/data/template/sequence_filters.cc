// Filters whose operand is a sequence, a mapping or any value.
#include <fmt/core.h>

#include <algorithm>

#include "data/template/access.h"
#include "data/template/filter_tables.h"
#include "data/template/filters.h"
#include "data/template/interpreter.h"
#include "data/template/operators.h"
#include "data/template/parameters.h"
#include "data/template/predicates.h"
#include "data/template/text_search.h"
#include "data/template/unicode.h"

namespace temper::jinja {
namespace {

Value IgnoreCase(const Value& v) {
  return v.IsString() ? Value::String(Lower(v.text())) : v;
}

// The keys of a path like "address.0.city".
class AttributePath {
 public:
  explicit AttributePath(const Value* attribute) {
    if (!attribute || attribute->IsNone()) return;
    if (!attribute->IsString()) {
      keys_.push_back(*attribute);
      return;
    }
    for (std::string_view part : SplitText(attribute->text(), ".", -1, false)) {
      const bool number = !part.empty() && part.size() < 10 &&
                          std::all_of(part.begin(), part.end(), [](char c) { return c >= '0' && c <= '9'; });
      keys_.push_back(number ? Value::Int(std::stoll(std::string(part))) : Value::String(std::string(part)));
    }
  }
  Value Of(Value item, const Value* fallback = nullptr) const {
    for (const Value& key : keys_) {
      item = GetItem(item, key);
      if (fallback && !fallback->IsNone() && item.IsUndefined()) item = *fallback;
    }
    return item;
  }

 private:
  std::vector<Value> keys_;
};

const Value* Pointer(const Parameters& p, size_t i) {
  return p.Has(i) ? &p[i] : nullptr;
}

Value Default(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("default", arguments, {"default_value", "boolean"});
  if (v.IsUndefined() || (p.Flag(1, false) && !Truth(v))) return p.Or(0, Value::String(""));
  return v;
}

Value LengthFilter(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  const auto length = Length(v);
  if (!length) Fail(fmt::format("object of type '{}' has no len()", TypeName(v)));
  return Value::Int(*length);
}

Value First(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  if (v.Is(Type::kIterator)) {  // takes one, leaves the rest
    IteratorObject& iterator = v.iterator();
    if (iterator.next < iterator.items.size()) return iterator.items[iterator.next++];
    return Value::UndefinedHint("No first item, sequence was empty.");
  }
  const Elements elements(v);
  return elements->empty() ? Value::UndefinedHint("No first item, sequence was empty.") : elements->front();
}

Value Last(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  if (v.Is(Type::kIterator)) Fail("'generator' object is not reversible; add '| list' before '| last'");
  const Elements elements(v);
  return elements->empty() ? Value::UndefinedHint("No last item, sequence was empty.") : elements->back();
}

Value ListFilter(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  return Value::List(*Elements(v));
}

Value Items(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  if (v.IsUndefined()) return Value::Iterator({});
  if (!v.Is(Type::kDict)) Fail("Can only get item pairs from a mapping.");
  return Value::Iterator(*Elements(Value::DictView(v, 'i')));
}

Value Reverse(Interpreter&, const Value& v, Arguments arguments) {
  RequireNoArguments(arguments);
  if (v.IsString()) return GetSlice(v, Value(), Value(), Value::Int(-1));
  if (!IsIterable(v)) Fail("argument must be iterable");
  std::vector<Value> items = *Elements(v);
  std::reverse(items.begin(), items.end());
  return v.Is(Type::kIterator) ? Value::List(std::move(items)) : Value::Iterator(std::move(items));
}

Value JoinFilter(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("join", arguments, {"d", "attribute"});
  const AttributePath path(Pointer(p, 1));
  const std::string separator = p.Has(0) ? Str(p[0]) : "";
  std::string out;
  bool first = true;
  for (const Value& item : Elements(v)) {
    if (!first) AppendText(out, separator);
    first = false;
    AppendText(out, Str(path.Of(item)));
  }
  return Value::String(std::move(out));
}

Value Sum(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("sum", arguments, {"attribute", "start"});
  const AttributePath path(Pointer(p, 0));
  Value total = p.Or(1, Value::Int(0));
  if (total.IsString()) Fail("sum() can't sum strings [use ''.join(seq) instead]");
  for (const Value& item : Elements(v)) total = Add(total, path.Of(item));
  return total;
}

// Sorted indices of `keys`, stable in both directions.
std::vector<size_t> SortedOrder(const std::vector<Value>& keys, bool reverse) {
  std::vector<size_t> order(keys.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = reverse ? order.size() - 1 - i : i;
  std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return Less(keys[a], keys[b]); });
  if (reverse) std::reverse(order.begin(), order.end());
  return order;
}

Value Sort(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("sort", arguments, {"reverse", "case_sensitive", "attribute"});
  std::vector<AttributePath> paths;
  if (p.Has(2) && p[2].IsString()) {
    for (std::string_view part : SplitText(p[2].text(), ",", -1, false)) {
      const Value attribute = Value::String(std::string(part));
      paths.emplace_back(&attribute);
    }
  } else {
    paths.emplace_back(Pointer(p, 2));
  }
  const bool case_sensitive = p.Flag(1, false);
  const Elements elements(v);
  std::vector<Value> keys;
  for (const Value& item : *elements) {
    std::vector<Value> key;
    for (const AttributePath& path : paths) key.push_back(case_sensitive ? path.Of(item) : IgnoreCase(path.Of(item)));
    keys.push_back(Value::List(std::move(key)));
  }
  std::vector<Value> out;
  for (size_t i : SortedOrder(keys, p.Flag(0, false))) out.push_back((*elements)[i]);
  return Value::List(std::move(out));
}

Value DictSort(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("dictsort", arguments, {"case_sensitive", "by", "reverse"});
  const std::string by = p.Has(1) ? p.Text(1) : "key";
  if (by != "key" && by != "value") Fail("You can only sort by either \"key\" or \"value\"");
  RequireDefined(v);
  if (!v.Is(Type::kDict)) Fail(fmt::format("dictsort needs a mapping, not {}", TypeName(v)));
  std::vector<Value> keys;
  for (const auto& [key, value] : v.dict().entries) {
    const Value& chosen = by == "key" ? key : value;
    keys.push_back(p.Flag(0, false) ? chosen : IgnoreCase(chosen));
  }
  std::vector<Value> out;
  for (size_t i : SortedOrder(keys, p.Flag(2, false))) {
    const auto& [key, value] = v.dict().entries[i];
    out.push_back(Value::Tuple({key, value}));
  }
  return Value::List(std::move(out));
}

Value Unique(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p("unique", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(Pointer(p, 1));
  DictBuilder seen;
  std::vector<Value> out;
  int64_t known = 0;
  for (const Value& item : Elements(v)) {
    const Value key = path.Of(item);
    seen.Set(p.Flag(0, false) ? key : IgnoreCase(key), Value());
    if (seen.size() == known) continue;
    known = seen.size();
    out.push_back(item);
  }
  return Value::Iterator(std::move(out));
}

template <bool largest>
Value Extreme(Interpreter&, const Value& v, Arguments arguments) {
  const Parameters p(largest ? "max" : "min", arguments, {"case_sensitive", "attribute"});
  const AttributePath path(Pointer(p, 1));
  const Elements elements(v);
  if (elements->empty()) return Value::UndefinedHint("No aggregated item, sequence was empty.");
  const auto key_of = [&](const Value& item) { return p.Flag(0, false) ? path.Of(item) : IgnoreCase(path.Of(item)); };
  const Value* best = &elements->front();
  Value best_key = key_of(*best);
  for (size_t i = 1; i < elements->size(); ++i) {
    Value key = key_of((*elements)[i]);
    if (largest ? Less(best_key, key, ">") : Less(key, best_key)) {
      best = &(*elements)[i];
      best_key = std::move(key);
    }
  }
  return *best;
}

Value Map(Interpreter& interpreter, const Value& v, Arguments arguments) {
  std::vector<Value> out;
  if (!Truth(v)) return Value::Iterator({});
  if (arguments.positional.empty() && !arguments.keywords.empty() &&
      std::any_of(arguments.keywords.begin(), arguments.keywords.end(),
                  [](const auto& k) { return k.first == "attribute"; })) {
    const Parameters p("map", arguments, {"", "attribute", "default"});
    const AttributePath path(&p[1]);
    for (const Value& item : Elements(v)) out.push_back(path.Of(item, Pointer(p, 2)));
    return Value::Iterator(std::move(out));
  }
  if (arguments.positional.empty()) Fail("map requires a filter argument");
  const std::string name = Str(arguments.positional[0]);
  const FilterFunction filter = FindFilter(name);
  if (!filter) Fail(fmt::format("No filter named '{}'.", name));
  arguments.positional.erase(arguments.positional.begin());
  for (const Value& item : Elements(v)) out.push_back(filter(interpreter, item, arguments));
  return Value::Iterator(std::move(out));
}

// select, reject, selectattr and rejectattr.
template <bool keep, bool by_attribute>
Value Choose(Interpreter& interpreter, const Value& v, Arguments arguments) {
  if (!Truth(v)) return Value::Iterator({});
  auto& given = arguments.positional;
  if (by_attribute && given.empty()) Fail("Missing parameter for attribute name");
  const AttributePath path(by_attribute ? &given[0] : nullptr);
  if (by_attribute) given.erase(given.begin());
  TestFunction test = nullptr;
  if (!given.empty()) {
    const std::string name = Str(given[0]);
    test = FindTest(name);
    if (!test) Fail(fmt::format("No test named '{}'.", name));
    given.erase(given.begin());
  }
  std::vector<Value> out;
  for (const Value& item : Elements(v)) {
    const Value subject = path.Of(item);
    if ((test ? test(interpreter, subject, arguments) : Truth(subject)) == keep) out.push_back(item);
  }
  return Value::Iterator(std::move(out));
}

}  // namespace

const FilterTable& SequenceFilters() {
  static const FilterTable kFilters = {
      {"count", LengthFilter},
      {"d", Default},
      {"default", Default},
      {"dictsort", DictSort},
      {"first", First},
      {"items", Items},
      {"join", JoinFilter},
      {"last", Last},
      {"length", LengthFilter},
      {"list", ListFilter},
      {"map", Map},
      {"max", Extreme<true>},
      {"min", Extreme<false>},
      {"reject", Choose<false, false>},
      {"rejectattr", Choose<false, true>},
      {"reverse", Reverse},
      {"select", Choose<true, false>},
      {"selectattr", Choose<true, true>},
      {"sort", Sort},
      {"sum", Sum},
      {"unique", Unique},
  };
  return kFilters;
}

FilterFunction FindFilter(std::string_view name) {
  for (const FilterTable* table : {&TextFilters(), &SequenceFilters()}) {
    const auto it = table->find(name);
    if (it != table->end()) return it->second;
  }
  return nullptr;
}

}  // namespace temper::jinja
