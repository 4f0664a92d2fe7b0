// Attributes, items and slices of values, by the rules of jinja2's sandbox: x.name looks for a method first and an item
// second, x['name'] the other way round; methods that change a list or mapping are undefined.
#pragma once

#include <string_view>

#include "data/template/value.h"

namespace temper::jinja {

using MethodFunction = Value (*)(Interpreter& interpreter, const Value& self, const Arguments& arguments);

Value GetAttribute(const Value& of, const Value& name);  // REQUIRES: name is a string
Value GetItem(const Value& of, const Value& key);
// An omitted bound is None.
Value GetSlice(const Value& of, const Value& start, const Value& stop, const Value& step);

// Methods of Python's str, and of its containers and numbers. Null if there is none of that name.
MethodFunction FindStringMethod(std::string_view name);
MethodFunction FindContainerMethod(Type type, std::string_view name);
MethodFunction FindMethod(const Value& of, std::string_view name);

}  // namespace temper::jinja
