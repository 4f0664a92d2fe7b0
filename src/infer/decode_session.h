// DecodeSession: a model compiled for decoding: Programs that take S more tokens (S = 1 and some larger, for prompts)
// over one key-value cache, sharing one arena with the weights.
//
// longrope and dynamic scaling go by the length of the sequence, as transformers' generate has it: the prompt's, then
// one more with each token. Where longrope takes its other frequencies, what the cache holds is made again with these,
// as transformers' Phi-3 does; with dynamic scaling, the cache keeps keys as they were made.
#pragma once

#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compile/memory/machine_room.h"
#include "compile/memory/memory_policy.h"
#include "device/kernel.h"
#include "format/trained_copy.h"
#include "model/base_format.h"
#include "model/lora.h"
#include "model/model.h"
#include "program/program_set.h"
#include "runtime/executor.h"

namespace temper {

struct DecodeSpec {
  DType dtype = DType::kF32;
  int64_t context = 0;              // tokens the cache holds
  std::vector<LoraModule> adapter;  // empty: the bare model
  std::vector<TrainedCopy> copies;  // weights that the adapter has trained in full
  BaseFormat base = {};             // how weights are kept
  int threads = 1;
  MemorySpec memory;
  bool joins_adapters = false;  // as in StepSpec
};

// Programs for steps of several lengths, the longest first and the last of one token. `available`: the machine's
// memory, if spec.memory is to keep within it (CompileForwardWithin). Errors: there is too little memory.
Result<ProgramSet> CompileDecoding(const Model& model, const DecodeSpec& spec,
                                   const ProcessMemory* available = nullptr);

class DecodeSession {
 public:
  // On the host, or in the memory of `device`, whose kernels `kernels` then are; both must outlive the decoder, and so
  // must the memory in `far`. Weights are zero until the caller loads them through `Buffer`. REQUIRES: `programs` come
  // from CompileDecoding, with a cache of `context` tokens.
  static Result<std::unique_ptr<DecodeSession>> Create(ProgramSet programs, int64_t context, KernelTable& kernels,
                                                       Device* device = nullptr, const FarTiers& far = {});
  // The same for a model that has everything in one memory.
  static Result<std::unique_ptr<DecodeSession>> Create(const Model& model, const DecodeSpec& spec, KernelTable& kernels,
                                                       Device* device = nullptr);

  // Memory of a weight or adapter, for loading; without memory if there is none of that name.
  DevicePart Buffer(const std::string& name) const;

  // Forgets all tokens.
  void Reset() { length_ = announced_ = made_for_ = 0; }
  // Announces `sequence`: what is fed next is part of a sequence of its length. Keeps the tokens that the cache and
  // `sequence` begin with and forgets the rest; all where another embedding was made for the cache's. The last token of
  // `sequence` is never kept, so that there is one to feed. Returns length(): how many tokens of `sequence` need not be
  // fed again.
  int64_t KeepPrefixOf(std::span<const int32_t> sequence);
  // Whether feeding the sequence up to `length` tokens makes what the cache holds again, which takes as long as a
  // prompt: KeepPrefixOf then keeps nothing, and the caller may feed it in pieces.
  bool MakesCacheAgainFor(int64_t length) const { return length_ > 0 && SwitchesBetween(made_for_, length); }
  int64_t length() const { return length_; }
  int64_t context() const { return context_; }
  // Tokens that one step takes at most. Feeding a sequence in pieces of this length runs the same steps.
  int64_t longest_step() const { return steps_.front().tokens; }

  // Appends `tokens` to the sequence and returns the logits [V] after the last; valid until the next call. REQUIRES:
  // tokens is not empty and length() + tokens.size() <= context().
  Result<std::span<const float>> Feed(std::span<const int32_t> tokens);

 private:
  struct Step {
    int64_t tokens;
    std::unique_ptr<Executor> executor;
    std::vector<HostArray> io;  // over token_, position_, fed_ and logits_
  };
  // A rotary embedding that is another one for sequences of more than `near` tokens.
  struct LongRope {
    int64_t near;
    bool grows;  // with every further token; else there are two
  };
  DecodeSession() = default;
  // Whether keys made for a sequence of one length are those of a sequence of the other.
  bool AreAlike(int64_t length, int64_t other) const;
  bool SwitchesBetween(int64_t length, int64_t other) const;

  int64_t context_ = 0, length_ = 0;
  int64_t announced_ = 0;  // the length of the last sequence that KeepPrefixOf was given
  int64_t made_for_ = 0;   // the longest sequence for which a token in the cache was made
  std::vector<LongRope> long_ropes_;
  ProgramSet programs_;
  std::unique_ptr<Arena> arena_;
  std::vector<int32_t> token_, position_, document_length_;  // as many as the longest step takes
  std::vector<int32_t> sequence_;                            // the tokens in the cache: the first length_ of context_
  int32_t fed_ = 0;                                          // tokens in the cache, as a step reads it
  std::vector<float> logits_;
  std::vector<Step> steps_;  // by descending number of tokens; the last takes one
};

}  // namespace temper
