#include "data/template/predicates.h"

#include <fmt/core.h>

#include <unordered_map>

#include "data/template/filters.h"
#include "data/template/operators.h"
#include "data/template/parameters.h"
#include "data/template/text_search.h"

namespace temper::jinja {
namespace {

bool IsOdd(Interpreter&, const Value& v, const Arguments&) {
  return Equal(BinaryOperation(ExprKind::kModulo, v, Value::Int(2)), Value::Int(1));
}
bool IsEven(Interpreter&, const Value& v, const Arguments&) {
  return Equal(BinaryOperation(ExprKind::kModulo, v, Value::Int(2)), Value::Int(0));
}
bool IsDivisibleBy(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("divisibleby", arguments, {"num"}, 1);
  return Equal(BinaryOperation(ExprKind::kModulo, v, p[0]), Value::Int(0));
}
bool IsDefined(Interpreter&, const Value& v, const Arguments&) {
  return !v.IsUndefined();
}
bool IsUndefinedTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsUndefined();
}
bool IsNoneTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsNone();
}
bool IsBoolean(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kBool);
}
bool IsTrue(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kBool) && v.boolean();
}
bool IsFalse(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kBool) && !v.boolean();
}
bool IsIntegerTest(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kInt);
}
bool IsFloat(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kFloat);
}
bool IsNumberTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsNumber();
}
bool IsStringTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsString();
}
bool IsMapping(Interpreter&, const Value& v, const Arguments&) {
  return v.Is(Type::kDict);
}
bool IsIterableTest(Interpreter&, const Value& v, const Arguments&) {
  return IsIterable(v);
}
// A value with a length and an index operator: also a mapping.
bool IsSequenceTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsUndefined() || v.IsString() || v.IsSequence() || v.Is(Type::kDict) || v.Is(Type::kRange);
}
bool IsCallable(Interpreter&, const Value& v, const Arguments&) {
  // jinja2's Undefined has a __call__, which fails.
  return v.IsUndefined() || (v.Is(Type::kNative) && v.native().callable());
}
bool IsLowerTest(Interpreter&, const Value& v, const Arguments&) {
  return IsLowerText(Str(v));
}
bool IsUpperTest(Interpreter&, const Value& v, const Arguments&) {
  return IsUpperText(Str(v));
}
bool IsEscaped(Interpreter&, const Value& v, const Arguments&) {
  return v.IsString() && v.markup();
}
bool IsFilter(Interpreter&, const Value& v, const Arguments&) {
  return v.IsString() && FindFilter(v.text());
}
bool IsTest(Interpreter&, const Value& v, const Arguments&) {
  return v.IsString() && FindTest(v.text());
}

bool IsSameAs(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("sameas", arguments, {"other"}, 1);
  if (v.type() != p[0].type()) return false;
  // CPython shares small numbers and literals; the identity of others is an accident.
  if (v.IsNone() || v.IsNumber() || v.IsString()) return Equal(v, p[0]);
  return v.identity() == p[0].identity();
}
bool IsIn(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("in", arguments, {"seq"}, 1);
  return Contains(p[0], v);
}

template <CompareOp op>
bool Compares(Interpreter&, const Value& v, const Arguments& arguments) {
  const Parameters p("comparison", arguments, {"other"}, 1);
  return Compare(op, v, p[0]);
}

}  // namespace

TestFunction FindTest(std::string_view name) {
  static const std::unordered_map<std::string_view, TestFunction> kTests = {
      {"odd", IsOdd},
      {"even", IsEven},
      {"divisibleby", IsDivisibleBy},
      {"defined", IsDefined},
      {"undefined", IsUndefinedTest},
      {"filter", IsFilter},
      {"test", IsTest},
      {"none", IsNoneTest},
      {"boolean", IsBoolean},
      {"false", IsFalse},
      {"true", IsTrue},
      {"integer", IsIntegerTest},
      {"float", IsFloat},
      {"lower", IsLowerTest},
      {"upper", IsUpperTest},
      {"string", IsStringTest},
      {"mapping", IsMapping},
      {"number", IsNumberTest},
      {"sequence", IsSequenceTest},
      {"iterable", IsIterableTest},
      {"callable", IsCallable},
      {"sameas", IsSameAs},
      {"escaped", IsEscaped},
      {"in", IsIn},
      {"==", Compares<CompareOp::kEqual>},
      {"eq", Compares<CompareOp::kEqual>},
      {"equalto", Compares<CompareOp::kEqual>},
      {"!=", Compares<CompareOp::kNotEqual>},
      {"ne", Compares<CompareOp::kNotEqual>},
      {">", Compares<CompareOp::kGreater>},
      {"gt", Compares<CompareOp::kGreater>},
      {"greaterthan", Compares<CompareOp::kGreater>},
      {"ge", Compares<CompareOp::kGreaterEqual>},
      {">=", Compares<CompareOp::kGreaterEqual>},
      {"<", Compares<CompareOp::kLess>},
      {"lt", Compares<CompareOp::kLess>},
      {"lessthan", Compares<CompareOp::kLess>},
      {"<=", Compares<CompareOp::kLessEqual>},
      {"le", Compares<CompareOp::kLessEqual>},
  };
  const auto it = kTests.find(name);
  return it == kTests.end() ? nullptr : it->second;
}

}  // namespace temper::jinja
