// Flow: what an op computes, as far as it matters for sharding: which dims its operands share, in which of them it is
// linear, what it adds up. The shardings of its outputs follow from those of its operands, or that these do not fit
// together. The verifier of shardings (compile/mesh/verify_sharding.h) uses it. It is independent of the sharding
// rules, which it checks.
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <span>

#include "tensor/mesh.h"

namespace temper {

struct FlowOperand {
  // A letter per dim, as in graph/op_list.inc; operands share a letter if they are walked through together. A small
  // letter is a dim that must be whole. An operand with fewer dims has the last letters.
  const char* dims;
  // The op is linear in this operand, all others fixed: terms of a sum give terms of a sum.
  bool linear = false;
  const char* flag = nullptr;  // for an optional operand: present where the attribute of that name is 1
  // May be whole along an axis that splits others with its letter: heads share keys and values.
  bool shared = false;
  // A rank has its rows alone (FlowRule::dealt).
  bool dealt = false;
};

struct FlowOutput {
  const char* dims;
  // A sum of products, each a set of operands as bits. If a product has a split dim that the output lacks, it is added
  // up: the output is a term of a sum.
  std::array<uint16_t, 4> products;
  const char* flag = nullptr;
  // Sharded like that operand. Axes along which it is whole and others are split are added up.
  int like = -1;
  // The ranks of `FlowRule::group` add up their terms among themselves.
  bool exchanged = false;
  // A rank has those of its rows that are dealt to it (FlowRule::dealt), and zeros for the others.
  bool dealt = false;
};

struct FlowRule {
  std::span<const FlowOperand> in;
  std::span<const FlowOutput> out;
  // A dim from which the op picks parts by its rank's place, and the attribute that names the axes that cut it.
  char part = 0;
  const char* part_axes = nullptr;
  // A dim of rows, each of which belongs to one rank of `part_axes`, by its expert. 0: none. What is made of dealt rows
  // without having these rows, or the dim `part`, is a term of a sum.
  char dealt = 0;
  // Dims over which no operand may be split: tokens that see each other.
  AxisSet together = {};
  bool of_whole = false;  // any number of operands, all of which must be whole
  // Nodes whose attribute `flag` is 1 have the rule `flagged` instead.
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
