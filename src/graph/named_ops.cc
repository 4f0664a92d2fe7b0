#include "graph/named_ops.h"

#include <array>
#include <cstddef>

#include "graph/traffic_ops.h"

namespace temper {
namespace {

constexpr std::array<std::string_view, kNumOps> kNames = {
#define TEMPER_OP(name, text, by) #text,
#include "graph/op_list.inc"
};

#define TEMPER_OP(name, text, by) static_assert(TrafficOp::k##name == Op::k##name);
#include "graph/traffic_list.inc"
#undef TEMPER_OP

constexpr std::array<OpRunner, kNumOps> kRunners = {
#define TEMPER_OP(name, text, by) OpRunner::k##by,
#include "graph/op_list.inc"
};

}  // namespace

int NumOps() {
  return kNumOps;
}

OpRunner RunnerOf(Op op) {
  return kRunners[static_cast<size_t>(op)];
}

bool IsTransfer(Op op) {
  return op == Op::kSend || op == Op::kRecv;
}

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
