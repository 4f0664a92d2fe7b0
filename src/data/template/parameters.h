// Binds the arguments of a call to the parameters of a function written in C++.
#pragma once

#include <initializer_list>
#include <string_view>
#include <vector>

#include "data/template/value.h"

namespace temper::jinja {

class Parameters {
 public:
  // Fails, as Python would, for too many arguments, unknown names, names given twice and, among the first `required`,
  // missing ones. `arguments` must outlive this.
  Parameters(std::string_view function, const Arguments& arguments, std::initializer_list<const char*> names,
             size_t required = 0);

  bool Has(size_t i) const { return values_[i] != nullptr; }
  bool HasNotNone(size_t i) const { return values_[i] && !values_[i]->IsNone(); }
  const Value& operator[](size_t i) const { return *values_[i]; }  // REQUIRES: Has(i)
  Value Or(size_t i, Value fallback) const { return values_[i] ? *values_[i] : std::move(fallback); }
  bool Flag(size_t i, bool fallback) const { return values_[i] ? Truth(*values_[i]) : fallback; }
  int64_t Int(size_t i, int64_t fallback) const;  // fails if it is not an integer
  const std::string& Text(size_t i) const;        // fails if it is not a string. REQUIRES: Has(i)

 private:
  const std::string_view function_;
  std::vector<const Value*> values_;
};

// For filters that take only their operand.
void RequireNoArguments(const Arguments& arguments);

}  // namespace temper::jinja
