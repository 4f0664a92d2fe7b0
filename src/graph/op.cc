#include "graph/op.h"

#include <array>

namespace temper {
namespace {

constexpr std::array<std::string_view, kNumOps> kNames = {
#define TEMPER_OP(name, text, by) #text,
#include "graph/op_list.inc"
};

}  // namespace

std::string_view ToString(Op op) {
  return kNames[static_cast<size_t>(op)];
}

std::optional<Op> ParseOp(std::string_view text) {
  for (int i = 0; i < kNumOps; ++i) {
    if (kNames[i] == text) return static_cast<Op>(i);
  }
  return std::nullopt;
}

}  // namespace temper
