// The values of a template: Python's None, bool, int (64 bits here), float, str, list, tuple,
// dict and jinja2's own types. A Value is cheap to copy: copies share the content. All but
// native objects (namespaces, loops, iterators) are immutable once made, so many threads may
// read the constants of a parsed template; everything else belongs to one render.
//
// Containers store their nesting depth and refuse more than kMaxNesting, which bounds every recursion over them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "data/template/budget.h"

namespace temper::jinja {

class Value;
class Interpreter;

enum class Type : unsigned char {
  kUndefined,
  kNone,
  kBool,
  kInt,
  kFloat,
  kString,
  kList,
  kTuple,
  kDict,
  kDictView,
  kRange,
  kIterator,
  kNative,
};

// JSON nests at most 256 levels deep (format/json.h); a template may wrap its data some more.
constexpr int kMaxNesting = 400;

struct Object {
  virtual ~Object() = default;
};

// Positional and keyword arguments of a call.
struct Arguments {
  std::vector<Value> positional;
  std::vector<std::pair<std::string, Value>> keywords;
};

// Values other than plain data: functions, macros, namespaces, loops.
struct NativeObject : Object {
  virtual std::string_view type_name() const = 0;
  virtual std::string Repr() const;
  // The attribute, or nullopt if there is none.
  virtual std::optional<Value> Attribute(std::string_view name);
  virtual bool callable() const { return false; }
  virtual Value Call(Interpreter& interpreter, Arguments arguments);
  // Drops all values at the end of a render: mutable objects may form cycles.
  virtual void Release() {}

  int nesting = 0;  // of its initial values; 0 for objects that a render keeps until its end
};

struct StringObject;
struct SequenceObject;
struct DictObject;
struct DictViewObject;
struct RangeObject;
struct IteratorObject;

class Value {
 public:
  Value() : type_(Type::kNone), int_(0) {}  // None
  static Value Bool(bool v);
  static Value Int(int64_t v);
  static Value Float(double v);
  // `markup`: marked safe by a template; joins with plain text by escaping it, as markupsafe does.
  static Value String(std::string text, bool markup = false);
  static Value List(std::vector<Value> items);
  static Value Tuple(std::vector<Value> items);
  static Value Range(int64_t start, int64_t stop, int64_t step);
  static Value Iterator(std::vector<Value> items);      // a Python generator: walked once, prints nothing useful
  static Value DictView(const Value& dict, char kind);  // kind: 'k'eys, 'v'alues, 'i'tems
  static Value Native(std::shared_ptr<NativeObject> object);
  // An undefined value stores the reason, for the error when it is used.
  static Value UndefinedName(std::string name);
  static Value UndefinedAttribute(const Value& of, const Value& key);
  static Value UndefinedHint(std::string hint);

  Type type() const { return type_; }
  bool Is(Type type) const { return type_ == type; }
  bool IsUndefined() const { return type_ == Type::kUndefined; }
  bool IsNone() const { return type_ == Type::kNone; }
  bool IsString() const { return type_ == Type::kString; }
  bool IsSequence() const { return type_ == Type::kList || type_ == Type::kTuple; }
  bool IsInteger() const { return type_ == Type::kInt || type_ == Type::kBool; }  // a bool is an int
  bool IsNumber() const { return IsInteger() || type_ == Type::kFloat; }

  // REQUIRES: the value is of that type.
  bool boolean() const { return int_ != 0; }
  int64_t integer() const { return int_; }  // of a bool too
  double number() const { return type_ == Type::kFloat ? float_ : static_cast<double>(int_); }
  const std::string& text() const;
  bool markup() const;
  int64_t text_length() const;              // in code points
  const std::vector<Value>& items() const;  // of a list or tuple
  const DictObject& dict() const;
  const DictViewObject& view() const;
  const RangeObject& range() const;
  IteratorObject& iterator() const;
  NativeObject& native() const;
  std::string undefined_message() const;

  const void* identity() const { return object_.get(); }
  int nesting() const;

 private:
  friend class DictBuilder;
  Value(Type type, std::shared_ptr<Object> object) : type_(type), int_(0), object_(std::move(object)) {}

  Type type_;
  union {
    int64_t int_;
    double float_;
  };
  std::shared_ptr<Object> object_;
};

struct DictObject : Object {
  std::vector<std::pair<Value, Value>> entries;       // in order of first insertion
  std::unordered_multimap<uint64_t, uint32_t> index;  // by HashOf(key); only for more than kScanned entries
  int nesting = 1;

  static constexpr size_t kScanned = 8;  // up to this size a scan is faster than a hash
  const Value* Find(const Value& key) const;
  const Value* Find(std::string_view key) const;
};

class DictBuilder {
 public:
  DictBuilder() : dict_(std::make_shared<DictObject>()) {}
  void Set(const Value& key, Value value);  // fails for a key that Python cannot hash
  void Set(std::string_view key, Value value) { Set(Value::String(std::string(key)), std::move(value)); }
  int64_t size() const { return static_cast<int64_t>(dict_->entries.size()); }
  Value Build() { return Value(Type::kDict, std::move(dict_)); }

 private:
  std::shared_ptr<DictObject> dict_;
};

struct DictViewObject : Object {
  std::shared_ptr<DictObject> dict;
  char kind = 'k';
};

struct RangeObject : Object {
  int64_t start = 0, stop = 0, step = 1;
  int64_t size() const;
};

struct IteratorObject : Object {
  std::vector<Value> items;
  size_t next = 0;
  int nesting = 1;
};

// --- Python's built-in functions of a value ---

std::string_view TypeName(const Value& v);  // "str", "NoneType", ...
bool Truth(const Value& v);
std::optional<int64_t> Length(const Value& v);
bool IsIterable(const Value& v);

std::string Str(const Value& v);        // str(v), what {{ v }} prints
std::string Repr(const Value& v);       // repr(v)
std::string AsciiRepr(const Value& v);  // ascii(v)
std::string FloatRepr(double v);
std::string QuotedRepr(std::string_view text);
std::string EscapeHtml(std::string_view text);
Value Escaped(const Value& v);  // plain text becomes markup; other values stay

// The elements that `for` visits; an iterator is used up by it. Fails for what cannot be iterated.
// The reference form keeps a list's own storage alive and copies nothing.
class Elements {
 public:
  explicit Elements(const Value& v);
  Elements(const Elements&) = delete;
  Elements& operator=(const Elements&) = delete;
  // Not for a temporary, whose elements would die with it; `for (const Value& v : Elements(x))` is fine.
  const std::vector<Value>& operator*() const& { return *items_; }
  const std::vector<Value>* operator->() const& { return items_; }
  std::vector<Value> operator*() && { return items_ == &own_ ? std::move(own_) : *items_; }
  auto begin() const { return items_->begin(); }
  auto end() const { return items_->end(); }

 private:
  Value keep_;
  std::vector<Value> own_;
  const std::vector<Value>* items_;
};

// --- Python's comparisons (comparison.cc) ---

bool Equal(const Value& a, const Value& b);
// a < b; fails for values that have no order, naming `op`.
bool Less(const Value& a, const Value& b, const char* op = "<");
bool Contains(const Value& container, const Value& item);
bool IsHashable(const Value& v);
uint64_t HashOf(const Value& v);  // equal values hash alike; fails if unhashable

// Uses of an undefined value fail with this.
[[noreturn]] void FailUndefined(const Value& undefined);
inline void RequireDefined(const Value& v) {
  if (v.IsUndefined()) FailUndefined(v);
}

// Charges `times` copies of `n` values, before they are made.
void ChargeValues(int64_t n, int64_t times = 1);
// Appends to a text that may not grow beyond the budget's limit.
void AppendText(std::string& out, std::string_view piece);

}  // namespace temper::jinja
