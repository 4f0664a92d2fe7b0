#include "data/template/operators.h"

#include <fmt/core.h>

#include <cmath>
#include <limits>

#include "data/template/percent_format.h"

namespace temper::jinja {
namespace {

[[noreturn]] void FailTypes(const char* op, const Value& left, const Value& right) {
  Fail(fmt::format("unsupported operand type(s) for {}: '{}' and '{}'", op, TypeName(left), TypeName(right)));
}

[[noreturn]] void FailOverflow() {
  FailUnsupported("an integer does not fit 64 bits");
}

int64_t CheckedAdd(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_add_overflow(a, b, &out)) FailOverflow();
  return out;
}
int64_t CheckedMultiply(int64_t a, int64_t b) {
  int64_t out;
  if (__builtin_mul_overflow(a, b, &out)) FailOverflow();
  return out;
}

// Rounds down, as Python does; C++ rounds to zero.
int64_t FloorDivide(int64_t a, int64_t b) {
  if (a == std::numeric_limits<int64_t>::min() && b == -1) FailOverflow();
  const int64_t q = a / b;
  return q - (a % b != 0 && (a < 0) != (b < 0));
}
int64_t FloorModulo(int64_t a, int64_t b) {
  if (b == -1) return 0;
  const int64_t r = a % b;
  return r != 0 && (r < 0) != (b < 0) ? r + b : r;
}
double FloorModulo(double a, double b) {
  double r = std::fmod(a, b);
  if (r == 0) return std::copysign(0.0, b);
  return (r < 0) != (b < 0) ? r + b : r;
}
// CPython's float_floor_div, which stays consistent with its modulo.
double FloorDivide(double a, double b) {
  double r = std::fmod(a, b);
  double q = (a - r) / b;
  if (r != 0 && (r < 0) != (b < 0)) q -= 1;
  if (q == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(q);
  return q - floor > 0.5 ? floor + 1 : floor;
}

// REQUIRES: exponent >= 0.
int64_t IntegerPower(int64_t base, int64_t exponent) {
  if (exponent == 0 || base == 1) return 1;
  if (base == 0) return 0;
  if (base == -1) return exponent % 2 ? -1 : 1;
  int64_t out = 1;
  while (true) {  // |base| is at least 2, so a large exponent overflows within a few rounds
    if (exponent & 1) out = CheckedMultiply(out, base);
    if ((exponent >>= 1) == 0) return out;
    base = CheckedMultiply(base, base);
  }
}

Value Power(const Value& left, const Value& right) {
  if (left.IsInteger() && right.IsInteger() && right.integer() >= 0) {
    return Value::Int(IntegerPower(left.integer(), right.integer()));
  }
  const double base = left.number(), exponent = right.number();
  if (base == 0 && exponent < 0) Fail("0.0 cannot be raised to a negative power");
  if (base < 0 && std::isfinite(base) && std::isfinite(exponent) && exponent != std::floor(exponent)) {
    FailUnsupported("a negative number to a fractional power");
  }
  const double out = std::pow(base, exponent);
  if (std::isinf(out) && std::isfinite(base) && std::isfinite(exponent)) Fail("Numerical result out of range");
  return Value::Float(out);
}

Value Arithmetic(ExprKind kind, const Value& left, const Value& right) {
  const bool integers = left.IsInteger() && right.IsInteger();
  const int64_t i = left.integer(), j = right.integer();
  const double a = left.number(), b = right.number();
  const bool divides = kind == ExprKind::kDivide || kind == ExprKind::kFloorDivide || kind == ExprKind::kModulo;
  if (divides && b == 0) {
    Fail(kind == ExprKind::kDivide ? "division by zero" : "integer division or modulo by zero");
  }
  switch (kind) {
    case ExprKind::kAdd:
      return integers ? Value::Int(CheckedAdd(i, j)) : Value::Float(a + b);
    case ExprKind::kSubtract: {
      int64_t out = 0;
      if (integers && __builtin_sub_overflow(i, j, &out)) FailOverflow();
      return integers ? Value::Int(out) : Value::Float(a - b);
    }
    case ExprKind::kMultiply:
      return integers ? Value::Int(CheckedMultiply(i, j)) : Value::Float(a * b);
    case ExprKind::kDivide:
      return Value::Float(a / b);
    case ExprKind::kFloorDivide:
      return integers ? Value::Int(FloorDivide(i, j)) : Value::Float(FloorDivide(a, b));
    case ExprKind::kModulo:
      return integers ? Value::Int(FloorModulo(i, j)) : Value::Float(FloorModulo(a, b));
    default:
      return Power(left, right);
  }
}

const char* Symbol(ExprKind kind) {
  switch (kind) {
    case ExprKind::kAdd:
      return "+";
    case ExprKind::kSubtract:
      return "-";
    case ExprKind::kMultiply:
      return "*";
    case ExprKind::kDivide:
      return "/";
    case ExprKind::kFloorDivide:
      return "//";
    case ExprKind::kModulo:
      return "%";
    default:
      return "** or pow()";
  }
}

Value Repeat(const Value& v, int64_t times) {
  times = std::max<int64_t>(times, 0);
  if (v.IsString()) {
    const auto size = static_cast<int64_t>(v.text().size());
    int64_t total = 0;
    if (__builtin_mul_overflow(size, times, &total)) total = std::numeric_limits<int64_t>::max();
    Budget::CheckText(total);
    Budget::Charge(total);
    std::string text;
    text.reserve(static_cast<size_t>(total));
    for (int64_t i = 0; size > 0 && i < times; ++i) text += v.text();
    return Value::String(std::move(text), v.markup());
  }
  const std::vector<Value>& items = v.items();
  if (items.empty()) times = 0;
  ChargeValues(static_cast<int64_t>(items.size()), times);
  std::vector<Value> out;
  out.reserve(items.size() * static_cast<size_t>(times));
  for (int64_t i = 0; i < times; ++i) out.insert(out.end(), items.begin(), items.end());
  return v.Is(Type::kList) ? Value::List(std::move(out)) : Value::Tuple(std::move(out));
}

}  // namespace

Value Add(const Value& left, const Value& right) {
  RequireDefined(left);
  RequireDefined(right);
  if (left.IsNumber() && right.IsNumber()) return Arithmetic(ExprKind::kAdd, left, right);
  if (left.IsString() && right.IsString()) {
    const bool markup = left.markup() || right.markup();
    Budget::Charge(static_cast<int64_t>(left.text().size()));
    std::string text = markup && !left.markup() ? EscapeHtml(left.text()) : left.text();
    AppendText(text, markup && !right.markup() ? EscapeHtml(right.text()) : right.text());
    return Value::String(std::move(text), markup);
  }
  if (left.IsSequence() && left.type() == right.type()) {
    ChargeValues(static_cast<int64_t>(left.items().size() + right.items().size()));
    std::vector<Value> items;
    items.reserve(left.items().size() + right.items().size());
    items = left.items();
    items.insert(items.end(), right.items().begin(), right.items().end());
    return left.Is(Type::kList) ? Value::List(std::move(items)) : Value::Tuple(std::move(items));
  }
  if (left.IsString() || left.IsSequence()) {
    Fail(fmt::format("can only concatenate {0} (not \"{1}\") to {0}", TypeName(left), TypeName(right)));
  }
  FailTypes("+", left, right);
}

Value BinaryOperation(ExprKind kind, const Value& left, const Value& right) {
  if (kind == ExprKind::kAdd) return Add(left, right);
  if (kind == ExprKind::kModulo && left.IsString()) return FormatPercent(left, right);
  RequireDefined(left);
  RequireDefined(right);
  if (left.IsNumber() && right.IsNumber()) return Arithmetic(kind, left, right);
  if (kind == ExprKind::kMultiply) {
    const auto repeatable = [](const Value& v) { return v.IsString() || v.IsSequence(); };
    if (repeatable(left) && right.IsInteger()) return Repeat(left, right.integer());
    if (repeatable(right) && left.IsInteger()) return Repeat(right, left.integer());
    if (repeatable(left) || repeatable(right)) {
      Fail(fmt::format("can't multiply sequence by non-int of type '{}'", TypeName(repeatable(left) ? right : left)));
    }
  }
  FailTypes(Symbol(kind), left, right);
}

Value Negate(const Value& v) {
  RequireDefined(v);
  if (v.Is(Type::kFloat)) return Value::Float(-v.number());
  if (!v.IsInteger()) Fail(fmt::format("bad operand type for unary -: '{}'", TypeName(v)));
  if (v.integer() == std::numeric_limits<int64_t>::min()) FailOverflow();
  return Value::Int(-v.integer());
}

Value Positive(const Value& v) {
  RequireDefined(v);
  if (v.Is(Type::kFloat)) return v;
  if (!v.IsInteger()) Fail(fmt::format("bad operand type for unary +: '{}'", TypeName(v)));
  return Value::Int(v.integer());
}

bool Compare(CompareOp op, const Value& left, const Value& right) {
  switch (op) {
    case CompareOp::kEqual:
      return Equal(left, right);
    case CompareOp::kNotEqual:
      return !Equal(left, right);
    case CompareOp::kLess:
      return Less(left, right, "<");
    case CompareOp::kGreater:
      return Less(right, left, ">");
    case CompareOp::kIn:
      return Contains(right, left);
    case CompareOp::kNotIn:
      return !Contains(right, left);
    // Not the negation of the opposite: NaN is neither above nor below.
    case CompareOp::kLessEqual:
      return Less(left, right, "<=") || Equal(left, right);
    case CompareOp::kGreaterEqual:
      return Less(right, left, ">=") || Equal(left, right);
  }
  return false;
}

}  // namespace temper::jinja
