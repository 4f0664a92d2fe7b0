// Attributes: the constants of a node (head counts, eps, flags), as sorted (key, value) pairs that print and read back
// exactly. Looked up when a kernel is made, never on the step path.
//
// Copies share their entries until one of them is changed, so a copy of a graph copies none.
//
// Keys are identifiers (letters, digits, '_'); strings hold printable ASCII without '"' and '}', so the text form needs
// no escapes.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"

namespace temper {

using AttributeValue = std::variant<int64_t, double, std::string, std::vector<double>>;

// Copies share their entries until one is changed. Thread rule: while a thread changes one, no other may change or
// destroy a copy of it.
class Attributes {
 public:
  Attributes() = default;
  Attributes(std::initializer_list<std::pair<std::string, AttributeValue>> entries);

  // REQUIRES: the text form can hold key and value.
  void Set(std::string key, AttributeValue value);
  bool Has(std::string_view key) const { return Find(key) != nullptr; }
  // nullptr where the key is absent.
  const AttributeValue* Find(std::string_view key) const;

  // REQUIRES: the key is present with that type, unless a fallback is given.
  int64_t Int(std::string_view key) const;
  int64_t IntOr(std::string_view key, int64_t fallback) const;
  double Double(std::string_view key) const;
  double DoubleOr(std::string_view key, double fallback) const;
  const std::string& String(std::string_view key) const;
  const std::vector<double>& Doubles(std::string_view key) const;
  // Absent means false.
  bool Flag(std::string_view key) const { return IntOr(key, 0) != 0; }

  using Entries = std::vector<std::pair<std::string, AttributeValue>>;
  const Entries& entries() const { return entries_ == nullptr ? None() : *entries_; }
  std::string ToString() const;                            // {eps=1e-05, heads=12}: doubles in shortest round-trip form
  static Result<Attributes> Parse(std::string_view text);  // the inverse; refuses a duplicate key
  friend bool operator==(const Attributes& a, const Attributes& b) {
    return a.entries_ == b.entries_ || a.entries() == b.entries();
  }

 private:
  static const Entries& None();
  std::shared_ptr<Entries> entries_;  // sorted by key; changed only where no copy shares them
};

}  // namespace temper
