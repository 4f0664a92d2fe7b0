// LiveMemory: what lives in the device's arena while a step runs, instruction by instruction, read from the Program
// itself: its persistent buffers, and of its temporaries those that a later instruction still reads.
#pragma once

#include <string>
#include <vector>

#include "program/program.h"

namespace temper {

// A tensor, or a kernel's scratch, that is there at the fullest moment.
struct LiveTensor {
  std::string what;  // "model.embed_tokens.weight", "linear of forward block 3"
  std::string type;  // "bf16[2048, 768]"; "" of scratch
  Bytes bytes;
};

// Micro-batches that stand for all of a step that ends with `last`: the first writes the gradients, the second adds to
// them, those after it are like it, and the last may add them up between ranks and update weights.
constexpr bool IsShown(int micro_batch, int last) {
  return micro_batch < 2 || micro_batch == last;
}

struct LiveMemory {
  // Bytes of temporaries and scratch during each instruction of the micro-batches that are shown and of the update, in
  // the schedule's order.
  // What a background collective still reads when its successor begins may be missing: packing keeps it a little longer
  // than any instruction shows.
  std::vector<Bytes> temporaries;
  size_t fullest = 0;                  // index of the instruction where most is alive
  std::vector<LiveTensor> at_fullest;  // the largest first, persistent ones included
};

// `tensors`: how many to list.
LiveMemory FindLiveMemory(const Program& program, size_t tensors);

}  // namespace temper
