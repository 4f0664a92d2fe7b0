// The Programs that a model is compiled to. All names come from here: those in a Program's text, in messages, and for
// finding one Program among several.
#pragma once

#include <cstdint>
#include <string>

namespace temper {

enum class ProgramKind : uint8_t {
  kTrain,      // a step: all micro-batches and the update
  kEval,       // the loss of a micro-batch
  kDecode,     // some tokens after those in the cache; one Program for each number of them
  kScore,      // the log-probability of every target under the trained model (token_logprob)
  kReference,  // the same under the model it is compared with: as it is at the start
};

// "train", "eval", "score", "reference"; "decode.16" of 16 tokens.
inline std::string ProgramName(ProgramKind kind, int64_t decoded_tokens = 0) {
  switch (kind) {
    case ProgramKind::kTrain:
      return "train";
    case ProgramKind::kEval:
      return "eval";
    case ProgramKind::kDecode:
      return "decode." + std::to_string(decoded_tokens);
    case ProgramKind::kScore:
      return "score";
    case ProgramKind::kReference:
      return "reference";
  }
  return "?";
}

}  // namespace temper
