// Expressions: the second half of the interpreter; interpreter.cc has the first, statements.
#include <fmt/core.h>

#include "data/template/access.h"
#include "data/template/interpreter.h"
#include "data/template/operators.h"

namespace temper::jinja {

Value Interpreter::Evaluate(const Expr& expr) {
  if (expr.kind == ExprKind::kConstant) return expr.value;
  // As Nested in interpreter.cc: this is the hottest recursion, so the guard is written out.
  constexpr int kMaxDepth = 1500;
  if (depth_ > kMaxDepth) Fail("the template recurses too deeply: does a macro call itself forever?");
  ++depth_;
  Budget::Step();
  try {
    Value value = EvaluateNode(expr);
    --depth_;
    return value;
  } catch (TemplateError& error) {
    --depth_;
    if (error.line() == 0) error.set_line(expr.line);
    throw;
  }
}

Value Interpreter::EvaluateNode(const Expr& expr) {
  switch (expr.kind) {
    case ExprKind::kConstant:
      return expr.value;
    case ExprKind::kName:
      return Lookup(expr.name);
    case ExprKind::kAttribute:
      return GetAttribute(Evaluate(*expr.a), expr.value);
    case ExprKind::kItem: {
      const Value of = Evaluate(*expr.a);
      return GetItem(of, Evaluate(*expr.b));
    }
    case ExprKind::kSlice:
      return EvaluateSlice(expr);
    case ExprKind::kCall:
      return EvaluateCall(expr);
    case ExprKind::kFilter:
      return EvaluateFilter(expr);
    case ExprKind::kTest:
      return EvaluateTest(expr);
    case ExprKind::kList:
      return Value::List(EvaluateAll(expr.list));
    case ExprKind::kTuple:
      return Value::Tuple(EvaluateAll(expr.list));
    case ExprKind::kDict:
      return EvaluateDict(expr);
    case ExprKind::kNot:
      return Value::Bool(!Truth(Evaluate(*expr.a)));
    case ExprKind::kNegative:
      return Negate(Evaluate(*expr.a));
    case ExprKind::kPositive:
      return Positive(Evaluate(*expr.a));
    case ExprKind::kAnd: {
      Value left = Evaluate(*expr.a);
      return Truth(left) ? Evaluate(*expr.b) : left;
    }
    case ExprKind::kOr: {
      Value left = Evaluate(*expr.a);
      return Truth(left) ? left : Evaluate(*expr.b);
    }
    case ExprKind::kAdd:
    case ExprKind::kSubtract:
    case ExprKind::kMultiply:
    case ExprKind::kDivide:
    case ExprKind::kFloorDivide:
    case ExprKind::kModulo:
    case ExprKind::kPower: {
      const Value left = Evaluate(*expr.a);
      return BinaryOperation(expr.kind, left, Evaluate(*expr.b));
    }
    case ExprKind::kConcat:
      return EvaluateConcat(expr);
    case ExprKind::kCompare:
      return EvaluateCompare(expr);
    case ExprKind::kConditional:
      if (Truth(Evaluate(*expr.b))) return Evaluate(*expr.a);
      if (expr.c) return Evaluate(*expr.c);
      return Value::UndefinedHint(fmt::format(
          "the inline if-expression on line {} evaluated to false and no else section was defined.", expr.line));
    case ExprKind::kNamespaceTarget:
      break;
  }
  Fail("a namespace attribute can only be assigned to here");
}

Value Interpreter::EvaluateConcat(const Expr& expr) {
  std::string text;
  for (const ExprPtr& part : expr.list) AppendText(text, Str(Evaluate(*part)));
  return Value::String(std::move(text));
}

Value Interpreter::EvaluateCompare(const Expr& expr) {
  Value left = Evaluate(*expr.a);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = Evaluate(*expr.list[i]);
    if (!Compare(expr.ops[i], left, right)) return Value::Bool(false);
    left = std::move(right);
  }
  return Value::Bool(true);
}

Value Interpreter::EvaluateSlice(const Expr& expr) {
  const Value of = Evaluate(*expr.a);
  const Value start = expr.b ? Evaluate(*expr.b) : Value();
  const Value stop = expr.c ? Evaluate(*expr.c) : Value();
  return GetSlice(of, start, stop, expr.d ? Evaluate(*expr.d) : Value());
}

Value Interpreter::EvaluateDict(const Expr& expr) {
  DictBuilder dict;
  for (size_t i = 0; i < expr.list.size(); i += 2) {
    const Value key = Evaluate(*expr.list[i]);
    dict.Set(key, Evaluate(*expr.list[i + 1]));
  }
  return dict.Build();
}

std::vector<Value> Interpreter::EvaluateAll(const std::vector<ExprPtr>& list) {
  std::vector<Value> out;
  out.reserve(list.size());
  for (const ExprPtr& item : list) out.push_back(Evaluate(*item));
  return out;
}

Arguments Interpreter::EvaluateArguments(const CallArguments& call) {
  Arguments out;
  out.positional = EvaluateAll(call.positional);
  for (const auto& [name, value] : call.keywords) out.keywords.emplace_back(name, Evaluate(*value));
  if (call.star) {
    const Value star = Evaluate(*call.star);
    const Elements more(star);
    Budget::Charge(static_cast<int64_t>(more->size() * sizeof(Value)));
    out.positional.insert(out.positional.end(), more->begin(), more->end());
  }
  if (call.double_star) {
    const Value more = Evaluate(*call.double_star);
    if (!more.Is(Type::kDict)) Fail(fmt::format("argument after ** must be a mapping, not {}", TypeName(more)));
    for (const auto& [key, value] : more.dict().entries) {
      if (!key.IsString()) Fail("keywords must be strings");
      out.keywords.emplace_back(key.text(), value);
    }
  }
  return out;
}

Value Interpreter::EvaluateCall(const Expr& expr) {
  const Expr& callee = *expr.a;
  if (callee.kind != ExprKind::kAttribute) {
    const Value function = Evaluate(callee);
    return Call(function, EvaluateArguments(*expr.call));
  }
  // A method call that does not create a bound method.
  const Value self = Evaluate(*callee.a);
  if (!self.IsUndefined() && !self.Is(Type::kNative)) {
    if (const MethodFunction method = FindMethod(self, callee.name)) {
      return method(*this, self, EvaluateArguments(*expr.call));
    }
  }
  const Value function = GetAttribute(self, callee.value);
  return Call(function, EvaluateArguments(*expr.call));
}

Value Interpreter::Call(const Value& callee, Arguments arguments) {
  RequireDefined(callee);
  if (!callee.Is(Type::kNative) || !callee.native().callable()) {
    Fail(fmt::format("'{}' object is not callable", TypeName(callee)));
  }
  return callee.native().Call(*this, std::move(arguments));
}

Value Interpreter::EvaluateFilter(const Expr& expr) {
  if (!expr.filter) Fail(fmt::format("No filter named '{}'.", expr.name));
  const Value operand = expr.a ? Evaluate(*expr.a) : filter_block_text_;
  return expr.filter(*this, operand, EvaluateArguments(*expr.call));
}

Value Interpreter::EvaluateTest(const Expr& expr) {
  if (!expr.test) Fail(fmt::format("No test named '{}'.", expr.name));
  const Value operand = Evaluate(*expr.a);
  return Value::Bool(expr.test(*this, operand, EvaluateArguments(*expr.call)));
}

}  // namespace temper::jinja
