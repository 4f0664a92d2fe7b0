#include "data/template/value.h"

#include <fmt/core.h>

#include <algorithm>
#include <limits>

#include "data/template/unicode.h"

namespace temper::jinja {

struct StringObject : Object {
  std::string text;
  int64_t length = 0;  // in code points
  bool markup = false;
};

struct SequenceObject : Object {
  std::vector<Value> items;
  int nesting = 1;
};

namespace {

struct UndefinedObject : Object {
  enum class Why { kName, kAttribute, kElement, kHint } why = Why::kName;
  std::string text, type;
};

int NestingOf(const std::vector<Value>& items) {
  int deepest = 0;
  for (const Value& item : items) deepest = std::max(deepest, item.nesting());
  if (deepest >= kMaxNesting) Fail(fmt::format("lists and mappings nested deeper than {} levels", kMaxNesting));
  return deepest + 1;
}

std::shared_ptr<SequenceObject> MakeSequence(std::vector<Value> items) {
  Budget::Charge(static_cast<int64_t>(items.size() * sizeof(Value) + sizeof(SequenceObject)));
  auto object = std::make_shared<SequenceObject>();
  object->nesting = NestingOf(items);
  object->items = std::move(items);
  return object;
}

std::shared_ptr<UndefinedObject> MakeUndefined(std::string_view text) {
  Budget::Charge(static_cast<int64_t>(text.size() + sizeof(UndefinedObject)));
  auto object = std::make_shared<UndefinedObject>();
  object->text = text;
  return object;
}

std::string TypeRepr(const Value& v) {
  return v.IsNone() ? "None" : std::string(TypeName(v)) + " object";
}

}  // namespace

std::string NativeObject::Repr() const {
  return fmt::format("<{}>", type_name());
}
std::optional<Value> NativeObject::Attribute(std::string_view) {
  return std::nullopt;
}
Value NativeObject::Call(Interpreter&, Arguments) {
  Fail(fmt::format("'{}' object is not callable", type_name()));
}

Value Value::Bool(bool v) {
  Value out;
  out.type_ = Type::kBool;
  out.int_ = v;
  return out;
}
Value Value::Int(int64_t v) {
  Value out;
  out.type_ = Type::kInt;
  out.int_ = v;
  return out;
}
Value Value::Float(double v) {
  Value out;
  out.type_ = Type::kFloat;
  out.float_ = v;
  return out;
}
Value Value::String(std::string text, bool markup) {
  Budget::CheckText(static_cast<int64_t>(text.size()));
  Budget::Charge(static_cast<int64_t>(text.size() + sizeof(StringObject)));
  auto object = std::make_shared<StringObject>();
  object->length = CountCodePoints(text);
  object->text = std::move(text);
  object->markup = markup;
  return Value(Type::kString, std::move(object));
}
Value Value::List(std::vector<Value> items) {
  return Value(Type::kList, MakeSequence(std::move(items)));
}
Value Value::Tuple(std::vector<Value> items) {
  return Value(Type::kTuple, MakeSequence(std::move(items)));
}
Value Value::Range(int64_t start, int64_t stop, int64_t step) {
  Budget::Charge(sizeof(RangeObject));
  auto object = std::make_shared<RangeObject>();
  object->start = start;
  object->stop = stop;
  object->step = step;
  return Value(Type::kRange, std::move(object));
}
Value Value::Iterator(std::vector<Value> items) {
  Budget::Charge(static_cast<int64_t>(items.size() * sizeof(Value) + sizeof(IteratorObject)));
  auto object = std::make_shared<IteratorObject>();
  object->nesting = NestingOf(items);
  object->items = std::move(items);
  return Value(Type::kIterator, std::move(object));
}
Value Value::DictView(const Value& dict, char kind) {
  Budget::Charge(sizeof(DictViewObject));
  auto object = std::make_shared<DictViewObject>();
  object->dict = std::static_pointer_cast<DictObject>(dict.object_);
  object->kind = kind;
  return Value(Type::kDictView, std::move(object));
}
Value Value::Native(std::shared_ptr<NativeObject> object) {
  Budget::Charge(sizeof(NativeObject));
  if (object->nesting >= kMaxNesting) Fail(fmt::format("values nested deeper than {} levels", kMaxNesting));
  return Value(Type::kNative, std::move(object));
}
Value Value::UndefinedName(std::string name) {
  auto object = MakeUndefined(name);
  return Value(Type::kUndefined, std::move(object));
}
Value Value::UndefinedAttribute(const Value& of, const Value& key) {
  auto object = MakeUndefined(key.IsString()   ? key.text()
                              : key.IsNumber() ? jinja::Repr(key)
                                               : std::string(TypeName(key)));
  object->why = key.IsString() ? UndefinedObject::Why::kAttribute : UndefinedObject::Why::kElement;
  object->type = TypeRepr(of);
  return Value(Type::kUndefined, std::move(object));
}
Value Value::UndefinedHint(std::string hint) {
  auto object = MakeUndefined(hint);
  object->why = UndefinedObject::Why::kHint;
  return Value(Type::kUndefined, std::move(object));
}

const std::string& Value::text() const {
  return static_cast<const StringObject&>(*object_).text;
}
bool Value::markup() const {
  return static_cast<const StringObject&>(*object_).markup;
}
int64_t Value::text_length() const {
  return static_cast<const StringObject&>(*object_).length;
}
const std::vector<Value>& Value::items() const {
  return static_cast<const SequenceObject&>(*object_).items;
}
const DictObject& Value::dict() const {
  return static_cast<const DictObject&>(*object_);
}
const DictViewObject& Value::view() const {
  return static_cast<const DictViewObject&>(*object_);
}
const RangeObject& Value::range() const {
  return static_cast<const RangeObject&>(*object_);
}
IteratorObject& Value::iterator() const {
  return static_cast<IteratorObject&>(*object_);
}
NativeObject& Value::native() const {
  return static_cast<NativeObject&>(*object_);
}

std::string Value::undefined_message() const {
  const auto& why = static_cast<const UndefinedObject&>(*object_);
  switch (why.why) {
    case UndefinedObject::Why::kName:
      return fmt::format("'{}' is undefined", why.text);
    case UndefinedObject::Why::kAttribute:
      return fmt::format("'{}' has no attribute '{}'", why.type, why.text);
    case UndefinedObject::Why::kElement:
      return fmt::format("{} has no element {}", why.type, why.text);
    case UndefinedObject::Why::kHint:
      break;
  }
  return why.text;
}

int Value::nesting() const {
  switch (type_) {
    case Type::kList:
    case Type::kTuple:
      return static_cast<const SequenceObject&>(*object_).nesting;
    case Type::kDict:
      return dict().nesting;
    case Type::kDictView:
      return view().dict->nesting + 1;
    case Type::kIterator:
      return iterator().nesting;
    case Type::kNative:
      return native().nesting;
    default:
      return 0;
  }
}

const Value* DictObject::Find(std::string_view key) const {
  if (entries.size() > kScanned) return Find(Value::String(std::string(key)));
  for (const auto& [k, v] : entries) {
    if (k.IsString() && k.text() == key) return &v;
  }
  return nullptr;
}
const Value* DictObject::Find(const Value& key) const {
  if (entries.size() <= kScanned) {
    for (const auto& [k, v] : entries) {
      if (Equal(k, key)) return &v;
    }
    return nullptr;
  }
  const auto [first, last] = index.equal_range(HashOf(key));
  for (auto it = first; it != last; ++it) {
    if (Equal(entries[it->second].first, key)) return &entries[it->second].second;
  }
  return nullptr;
}

void DictBuilder::Set(const Value& key, Value value) {
  if (!IsHashable(key)) Fail(fmt::format("unhashable type: '{}'", TypeName(key)));
  Budget::Step();
  Budget::Charge(4 * sizeof(Value));  // the pair, and its place in the index
  const int nesting = std::max(key.nesting(), value.nesting());
  if (nesting >= kMaxNesting) Fail(fmt::format("lists and mappings nested deeper than {} levels", kMaxNesting));
  dict_->nesting = std::max(dict_->nesting, nesting + 1);
  if (const Value* old = dict_->Find(key)) {
    *const_cast<Value*>(old) = std::move(value);
    return;
  }
  auto& entries = dict_->entries;
  entries.emplace_back(key, std::move(value));
  if (entries.size() == DictObject::kScanned + 1) {
    for (uint32_t i = 0; i < entries.size(); ++i) dict_->index.emplace(HashOf(entries[i].first), i);
  } else if (entries.size() > DictObject::kScanned) {
    dict_->index.emplace(HashOf(key), static_cast<uint32_t>(entries.size() - 1));
  }
}

int64_t RangeObject::size() const {
  if (step > 0) return start < stop ? (stop - start - 1) / step + 1 : 0;
  return start > stop ? (start - stop - 1) / -step + 1 : 0;
}

std::string_view TypeName(const Value& v) {
  switch (v.type()) {
    case Type::kUndefined:
      return "Undefined";
    case Type::kNone:
      return "NoneType";
    case Type::kBool:
      return "bool";
    case Type::kInt:
      return "int";
    case Type::kFloat:
      return "float";
    case Type::kString:
      return v.markup() ? "Markup" : "str";
    case Type::kList:
      return "list";
    case Type::kTuple:
      return "tuple";
    case Type::kDict:
      return "dict";
    case Type::kDictView:
      return v.view().kind == 'k' ? "dict_keys" : v.view().kind == 'v' ? "dict_values" : "dict_items";
    case Type::kRange:
      return "range";
    case Type::kIterator:
      return "generator";
    case Type::kNative:
      return v.native().type_name();
  }
  return "object";
}

std::optional<int64_t> Length(const Value& v) {
  switch (v.type()) {
    case Type::kUndefined:
      return 0;
    case Type::kString:
      return v.text_length();
    case Type::kList:
    case Type::kTuple:
      return static_cast<int64_t>(v.items().size());
    case Type::kDict:
      return static_cast<int64_t>(v.dict().entries.size());
    case Type::kDictView:
      return static_cast<int64_t>(v.view().dict->entries.size());
    case Type::kRange:
      return v.range().size();
    default:
      return std::nullopt;
  }
}

bool Truth(const Value& v) {
  switch (v.type()) {
    case Type::kNone:
      return false;
    case Type::kBool:
    case Type::kInt:
      return v.integer() != 0;
    case Type::kFloat:
      return v.number() != 0;
    default: {
      const auto length = Length(v);
      return !length || *length != 0;
    }
  }
}

bool IsIterable(const Value& v) {
  switch (v.type()) {
    case Type::kNone:
    case Type::kBool:
    case Type::kInt:
    case Type::kFloat:
    case Type::kNative:
      return false;
    default:
      return true;
  }
}

Elements::Elements(const Value& v) : keep_(v), items_(&own_) {
  switch (v.type()) {
    case Type::kUndefined:
      return;
    case Type::kList:
    case Type::kTuple:
      items_ = &keep_.items();
      break;
    case Type::kString:
      for (size_t at = 0; at < v.text().size();) {
        const size_t start = at;
        NextCodePoint(v.text(), at);
        Budget::Step();
        own_.push_back(Value::String(v.text().substr(start, at - start)));
      }
      break;
    case Type::kDict:
    case Type::kDictView: {
      const char kind = v.Is(Type::kDict) ? 'k' : v.view().kind;
      for (const auto& [key, value] : v.Is(Type::kDict) ? v.dict().entries : v.view().dict->entries) {
        own_.push_back(kind == 'k' ? key : kind == 'v' ? value : Value::Tuple({key, value}));
      }
      break;
    }
    case Type::kRange: {
      const RangeObject& range = v.range();
      const int64_t n = range.size();
      Budget::Charge(n * static_cast<int64_t>(sizeof(Value)));
      own_.reserve(static_cast<size_t>(n));
      for (int64_t i = 0; i < n; ++i) own_.push_back(Value::Int(range.start + i * range.step));
      break;
    }
    case Type::kIterator: {
      IteratorObject& iterator = v.iterator();
      own_.assign(iterator.items.begin() + static_cast<int64_t>(iterator.next), iterator.items.end());
      iterator.next = iterator.items.size();
      break;
    }
    default:
      Fail(fmt::format("'{}' object is not iterable", TypeName(v)));
  }
  Budget::Step(static_cast<int64_t>(items_->size()));
}

void FailUndefined(const Value& undefined) {
  Fail(undefined.undefined_message());
}

void ChargeValues(int64_t n, int64_t times) {
  int64_t values = 0;
  if (__builtin_mul_overflow(n, times, &values)) values = std::numeric_limits<int32_t>::max();
  Budget::Step(values);  // far fewer than would overflow their bytes
  Budget::Charge(values * static_cast<int64_t>(sizeof(Value)));
}

void AppendText(std::string& out, std::string_view piece) {
  Budget::CheckText(static_cast<int64_t>(out.size() + piece.size()));
  Budget::Charge(static_cast<int64_t>(piece.size()));
  out += piece;
}

}  // namespace temper::jinja
