// Rows of data that are longer than max_seq_len: what is kept of a turn that is cut in proportion, and the error where
// none may be cut. Pure functions; any thread.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "data/sample.h"

namespace temper {

// Tokens of a turn: what comes before an answer, and the answer.
struct TurnLength {
  int64_t prompt = 0, answer = 0;
  bool operator==(const TurnLength&) const = default;
};

// What is kept of a turn in `room` tokens, of the beginning of each (LLaMA-Factory, data/processor/processor_utils.py,
// infer_seqlen): all of the answer if it takes less than half of the room, else all of the prompt if that does, else
// both in proportion.
TurnLength KeptOfTurn(TurnLength turn, int64_t room);

// Cuts the turns of `sample` one after the other, each in the room that those before it leave. A turn is tokens that
// are not supervised, and the supervised ones that follow.
void CutInProportion(int64_t room, Sample& sample);

// The error for a row where long ones are not wanted.
Status TooLong(const std::string& where, int64_t length, int64_t max_seq_len);

}  // namespace temper
