// The functions that every template can call.
#include <fmt/core.h>

#include <array>

#include "base/c_locale.h"
#include "data/template/interpreter.h"
#include "data/template/parameters.h"

namespace temper::jinja {
namespace {

constexpr int64_t kMaxRange = 100000;  // jinja2's sandbox

Value MakeRange(Interpreter&, Arguments arguments) {
  const Parameters p("range", arguments, {"start", "stop", "step"}, 1);
  const int64_t first = p.Int(0, 0);
  const int64_t start = p.Has(1) ? first : 0, stop = p.Int(1, first), step = p.Int(2, 1);
  if (step == 0) Fail("range() arg 3 must not be zero");
  // In 128 bits: the difference of two 64-bit numbers may not fit in 64.
  const __int128 distance = step > 0 ? static_cast<__int128>(stop) - start : static_cast<__int128>(start) - stop;
  const __int128 stride = step > 0 ? static_cast<__int128>(step) : -static_cast<__int128>(step);
  if (distance > 0 && (distance - 1) / stride + 1 > kMaxRange) {
    Fail(fmt::format("Range too big. The sandbox blocks ranges larger than MAX_RANGE ({}).", kMaxRange));
  }
  // Moves an end beyond the last element to it, so that arithmetic on the range cannot overflow.
  const int64_t size = distance > 0 ? static_cast<int64_t>((distance - 1) / stride) + 1 : 0;
  if (size == 0) return Value::Range(start, stop == start ? stop : start, step);
  int64_t end = 0;
  if (__builtin_mul_overflow(size, step, &end) || __builtin_add_overflow(start, end, &end)) {
    FailUnsupported("a range beyond 64-bit integers");
  }
  return Value::Range(start, stop, step);
}

// dict(mapping or pairs, **keywords)
void FillDict(DictBuilder& dict, const char* function, const Arguments& arguments) {
  if (arguments.positional.size() > 1) {
    Fail(fmt::format("{} expected at most 1 argument, got {}", function, arguments.positional.size()));
  }
  if (!arguments.positional.empty()) {
    const Value& from = arguments.positional[0];
    if (from.Is(Type::kDict)) {
      for (const auto& [key, value] : from.dict().entries) dict.Set(key, value);
    } else {
      for (const Value& pair : Elements(from)) {
        const Elements two(pair);
        if (two->size() != 2) Fail(fmt::format("{}: each element must be a pair", function));
        dict.Set((*two)[0], (*two)[1]);
      }
    }
  }
  for (const auto& [name, value] : arguments.keywords) dict.Set(name, value);
}

Value MakeDict(Interpreter&, Arguments arguments) {
  DictBuilder dict;
  FillDict(dict, "dict", arguments);
  return dict.Build();
}

Value MakeNamespace(Interpreter& interpreter, Arguments arguments) {
  DictBuilder dict;
  FillDict(dict, "namespace", arguments);
  auto ns = std::make_shared<NamespaceObject>();
  Budget::Charge(sizeof(NamespaceObject));
  const Value attributes = dict.Build();
  for (const auto& [key, value] : attributes.dict().entries) {
    if (!key.IsString()) Fail("namespace() needs names for its values");
    ns->Set(key.text(), value);
  }
  interpreter.Keep(ns);
  return Value::Native(std::move(ns));
}

Value RaiseException(Interpreter&, Arguments arguments) {
  const Parameters p("raise_exception", arguments, {"message"}, 1);
  Fail("the template rejects this conversation: " + Str(p[0]));
}

// C's strftime with Python's additions.
Value FormatNow(Interpreter& interpreter, Arguments arguments) {
  const Parameters p("strftime_now", arguments, {"format"}, 1);
  std::string out;
  const std::string& format = p.Text(0);
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out += format[i];
      continue;
    }
    std::string directive = {'%', format[++i]};
    // glibc's flags, between the percent sign and the letter.
    while ((format[i] == '-' || format[i] == '_' || format[i] == '0' || format[i] == '^' || format[i] == '#') &&
           i + 1 < format.size() && directive.size() < 8) {
      directive += format[++i];
    }
    if (directive == "%f") {
      out += "000000";
    } else if (directive != "%z" && directive != "%Z" && directive != "%:") {
      std::array<char, 256> buffer;  // the longest directive of the C locale, %c, needs 24
      out.append(buffer.data(),
                 strftime_l(buffer.data(), buffer.size(), directive.c_str(), &interpreter.now(), CLocale()));
    }
  }
  return Value::String(std::move(out));
}

struct JoinerObject final : NativeObject {
  explicit JoinerObject(std::string text) : separator(std::move(text)) {}
  std::string_view type_name() const override { return "Joiner"; }
  bool callable() const override { return true; }
  Value Call(Interpreter&, Arguments) override { return Value::String(std::exchange(used, true) ? separator : ""); }

  const std::string separator;
  bool used = false;
};

Value MakeJoiner(Interpreter&, Arguments arguments) {
  const Parameters p("joiner", arguments, {"sep"});
  return Value::Native(std::make_shared<JoinerObject>(p.Has(0) ? p.Text(0) : ", "));
}

struct CyclerObject final : NativeObject {
  explicit CyclerObject(std::vector<Value> all) : items(std::move(all)) {
    for (const Value& item : items) nesting = std::max(nesting, item.nesting() + 1);
  }
  std::string_view type_name() const override { return "Cycler"; }
  std::optional<Value> Attribute(std::string_view name) override {
    if (name == "current") return items[at];
    if (name != "next" && name != "reset") return std::nullopt;
    // The cycler is kept until the end of the render, so a plain pointer to it is safe.
    return Value::Native(std::make_shared<FunctionObject>(
        std::string(name), [this, next = name == "next"](Interpreter&, Arguments) -> Value {
          if (!next) {
            at = 0;
            return Value();
          }
          const Value current = items[at];
          at = (at + 1) % items.size();
          return current;
        }));
  }

  const std::vector<Value> items;
  size_t at = 0;
};

Value MakeCycler(Interpreter& interpreter, Arguments arguments) {
  if (arguments.positional.empty()) Fail("at least one item has to be provided");
  auto cycler = std::make_shared<CyclerObject>(std::move(arguments.positional));
  interpreter.Keep(cycler);
  return Value::Native(std::move(cycler));
}

Value MakeFunction(const char* name, FunctionObject::Body body) {
  return Value::Native(std::make_shared<FunctionObject>(name, std::move(body)));
}

}  // namespace

const Value* FindGlobal(std::string_view name) {
  static const std::pair<std::string_view, Value> kGlobals[] = {
      {"range", MakeFunction("range", MakeRange)},
      {"dict", MakeFunction("dict", MakeDict)},
      {"namespace", MakeFunction("namespace", MakeNamespace)},
      {"raise_exception", MakeFunction("raise_exception", RaiseException)},
      {"strftime_now", MakeFunction("strftime_now", FormatNow)},
      {"joiner", MakeFunction("joiner", MakeJoiner)},
      {"cycler", MakeFunction("cycler", MakeCycler)},
  };
  for (const auto& [known, value] : kGlobals) {
    if (known == name) return &value;
  }
  return nullptr;
}

}  // namespace temper::jinja
