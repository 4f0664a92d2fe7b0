// LiveMemory: live bytes in the device's arena during a step, instruction by instruction, derived from the Program: its
// persistent buffers, and the temporaries that a later instruction still reads.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace temper {

// A tensor, or a kernel's scratch, that is live at the peak.
struct LiveTensor {
  std::string what;  // "model.embed_tokens.weight", "linear of forward block 3"
  std::string type;  // "bf16[2048, 768]"; "" for scratch
  Bytes bytes;
};

// Micro-batches that represent all of a step whose last one is `last`: the first writes the gradients, the second adds
// to them, later ones are like the second, and the last may sum gradients over ranks and update weights.
constexpr bool IsShown(int micro_batch, int last) {
  return micro_batch < 2 || micro_batch == last;
}

struct LiveMemory {
  // Bytes of temporaries and scratch during each instruction of the shown micro-batches and of the update, in the
  // schedule's order. Operands of a background collective may be missing while its successor runs: the layout keeps
  // them longer than instructions show.
  std::vector<Bytes> temporaries;
  size_t fullest = 0;                  // index of the instruction with the most live bytes
  std::vector<LiveTensor> at_fullest;  // largest first, persistent ones included
};

// `tensors`: how many to list.
LiveMemory FindLiveMemory(const Program& program, size_t tensors);

}  // namespace temper
