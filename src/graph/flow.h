// Flow: what an op computes, as far as it matters for how values lie on a mesh: which dims its operands share, which of
// them it is linear in, what it adds up. From the shardings of its operands follow those of its outputs, or that they
// do not fit together. The verifier of shardings (compile/mesh/verify_sharding.h) goes by it; it is independent of the
// sharding rules, which it holds to account.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "tensor/mesh.h"

namespace temper {

struct FlowOperand {
  // A letter per dim, as in graph/op.h; operands share a letter where they are walked through together. A small letter
  // is a dim that has to be whole. Of an operand with fewer dims it is the last ones.
  const char* dims;
  // The op is linear in it, all else fixed: terms of a sum give terms of a sum.
  bool linear = false;
  const char* flag = nullptr;  // of an optional one: there where the attribute of that name is 1
  // May be whole along an axis that splits others of its letter: heads share keys and values.
  bool shared = false;
};

struct FlowOutput {
  const char* dims;
  // A sum of products; each a set of operands as bits. What a product has in a split dim that the output lacks is
  // added up: the output is a term of a sum.
  std::array<uint16_t, 3> products;
  const char* flag = nullptr;
  // Lies like that operand; what it is whole along, and others are split along, is added up.
  int like = -1;
  // The ranks of `FlowRule::group` add up what they have among themselves.
  bool exchanged = false;
};

struct FlowRule {
  std::span<const FlowOperand> in;
  std::span<const FlowOutput> out;
  // A dim whose parts the op picks by the place of its rank's part, and the attribute that names the axes that cut it.
  char part = 0;
  const char* part_axes = nullptr;
  // What no operand may be split over: tokens that see each other.
  AxisSet together = {};
  bool of_whole = false;  // any number of operands, all of which have to be whole
  // The rule of nodes whose attribute of that name is 1, where it is another.
  const char* flag = nullptr;
  const FlowRule* flagged = nullptr;
};

constexpr FlowOperand LinearIn(const char* dims, const char* flag = nullptr) {
  return {.dims = dims, .linear = true, .flag = flag};
}
constexpr FlowOperand SharedBy(const char* dims) {
  return {.dims = dims, .shared = true};
}

// The operands of a product.
constexpr uint16_t Factors(std::initializer_list<int> operands) {
  uint16_t bits = 0;
  for (const int i : operands) bits = static_cast<uint16_t>(bits | (1u << i));
  return bits;
}

}  // namespace temper
