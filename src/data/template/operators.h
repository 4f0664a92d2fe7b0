// Python's operators on template values. All throw TemplateError with Python's message.
#pragma once

#include "data/template/ast.h"
#include "data/template/value.h"

namespace temper::jinja {

// `kind`: kAdd ... kPower.
Value BinaryOperation(ExprKind kind, const Value& left, const Value& right);
Value Negate(const Value& v);
Value Positive(const Value& v);
bool Compare(CompareOp op, const Value& left, const Value& right);

Value Add(const Value& left, const Value& right);

}  // namespace temper::jinja
