// What Python says of two values: whether they are equal, which is less, whether one holds the other.
#pragma once

#include "data/template/value.h"

namespace temper::jinja {

bool Equal(const Value& a, const Value& b);
// a < b; fails for values that have no order, naming `op`.
bool Less(const Value& a, const Value& b, const char* op = "<");
bool Contains(const Value& container, const Value& item);
bool IsHashable(const Value& v);
uint64_t HashOf(const Value& v);  // equal values hash alike; fails where unhashable

}  // namespace temper::jinja
