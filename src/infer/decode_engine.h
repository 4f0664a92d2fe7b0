// DecodeEngine: a model compiled for decoding: Programs that take up to S more tokens, of any of its sequences, over
// one key-value cache in pages, sharing one arena with the weights. Each sequence gets the logits that it gets alone,
// to the bit on CPUs, whoever else is in its steps: products and attention compute a token's row from its operands
// alone.
//
//   auto engine = DecodeEngine::Create(...);
//   DecodeSequence* a = engine->Open(), *b = engine->Open();
//   engine->Step({{a, prompt}, {b, last_token}});  // a->logits(), b->logits()
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
#include "format/trained_rows.h"
#include "infer/cache_pages.h"
#include "model/base_format.h"
#include "model/lora.h"
#include "model/model.h"
#include "program/program_set.h"
#include "runtime/executor.h"

namespace temper {

struct DecodeSpec {
  DType dtype = DType::kF32;
  int64_t context = 0;    // tokens that the cache holds of each sequence
  int64_t sequences = 1;  // at most, at a time
  // Empty: the bare model. The caller loads the squares of DoRA's sums (checkpoint/row_norms.h).
  std::vector<LoraModule> adapter;
  std::vector<TrainedCopy> copies;  // weights that the adapter has trained in full
  std::vector<TrainedRows> rows;    // and rows of tables
  BaseFormat base = {};             // how weights are kept
  int threads = 1;
  MemorySpec memory;
  bool joins_adapters = false;  // as in StepSpec
};

// Programs for steps of several lengths, the longest first and the last of one token. `available`: the machine's
// memory, if spec.memory is to keep within it (CompileForwardWithin). Errors: there is too little memory.
Result<ProgramSet> CompileDecoding(const Model& model, const DecodeSpec& spec,
                                   const ProcessMemory* available = nullptr);
// What the caches of all sequences take in such Programs.
Bytes CacheBytesOf(const ProgramSet& programs);

class DecodeEngine;

// One sequence of tokens of an engine. Lives in the engine, in a slot of its cache.
class DecodeSequence {
 public:
  // Forgets all tokens.
  void Reset();
  // Announces `sequence`: what is fed next is part of a sequence of its length. Keeps the tokens that the cache and
  // `sequence` begin with and forgets the rest; all where another embedding was made for the cache's. Recurrent states
  // go back to where they were copied, if that is among these tokens, else to none. Where another sequence of the
  // engine has more of its beginning, whole pages of that are shared. The last token of `sequence` is never kept, so
  // that there is one to feed. Returns length(): how many tokens of `sequence` need not be fed again.
  int64_t KeepPrefixOf(std::span<const int32_t> sequence);
  // Whether feeding the sequence up to `length` tokens makes what the cache holds again, which takes as long as a
  // prompt: KeepPrefixOf then keeps nothing, and the caller may feed it in pieces.
  bool MakesCacheAgainFor(int64_t length) const;
  int64_t length() const { return length_; }
  int64_t context() const;
  DecodeEngine& engine() const { return engine_; }

  // The engine's step of this sequence alone: appends `tokens` and returns the logits [V] after the last; valid until
  // this sequence is fed again. REQUIRES: as Step.
  Result<std::span<const float>> Feed(std::span<const int32_t> tokens);
  // After the last token that was fed.
  std::span<const float> logits() const { return logits_; }

 private:
  friend class DecodeEngine;
  DecodeSequence(DecodeEngine& engine, int slot);
  void CutTo(int64_t length);
  // Of recurrent states as they are; nothing where they have no place for copies.
  void CopyStates();
  // Puts the copy of recurrent states back, if it was made after `length` tokens at most. Returns after how many, or 0.
  int64_t StatesBackTo(int64_t length);

  DecodeEngine& engine_;
  const int slot_;
  bool open_ = false;
  int64_t length_ = 0;
  int64_t announced_ = 0;           // the length of the last sequence that KeepPrefixOf was given
  int64_t made_for_ = 0;            // the longest sequence for which a token in the cache was made
  int64_t begun_ = 0, fed_to_ = 0;  // during a step: where it began, and where it is to end
  int64_t copied_ = 0;              // after how many tokens recurrent states were copied; 0: there is no copy
  std::vector<int32_t> tokens_;     // those in the cache are the first length_ of context
  std::span<int32_t> pages_;        // of the slot: a row of the page table; taken are those of the first length_ tokens
  int64_t taken_ = 0;               // pages
  std::vector<float> logits_;       // [V]
};

class DecodeEngine {
 public:
  // On the host, or in the memory of `device`, whose kernels `kernels` then are; both must outlive the engine, and so
  // must the memory in `far`. Weights are zero until the caller loads them through `Buffer`. REQUIRES: `programs` come
  // from CompileDecoding, with a cache of `context` tokens for each sequence.
  static Result<std::unique_ptr<DecodeEngine>> Create(ProgramSet programs, int64_t context, KernelTable& kernels,
                                                      Device* device = nullptr, const FarTiers& far = {});
  // The same for a model that has everything in one memory.
  static Result<std::unique_ptr<DecodeEngine>> Create(const Model& model, const DecodeSpec& spec, KernelTable& kernels,
                                                      Device* device = nullptr);

  // Memory of a weight or adapter, for loading; without memory if there is none of that name.
  DevicePart Buffer(const std::string& name) const;

  // A new sequence without tokens, until Close; nullptr where as many as were compiled for are open.
  DecodeSequence* Open();
  void Close(DecodeSequence* sequence);

  // Appends tokens to sequences and makes the logits after the last of each. Feeding a sequence in pieces, or with
  // others, gives the same bits on CPUs. REQUIRES: each is open and there once; its tokens are not empty and fit its
  // context. After an error sequences have the tokens that they had before, or fewer where there are recurrent states.
  struct Fed {
    DecodeSequence* sequence;
    std::span<const int32_t> tokens;
  };
  Status Step(std::span<const Fed> batch);

  int64_t context() const { return context_; }
  int64_t sequences() const { return static_cast<int64_t>(sequences_.size()); }
  // Tokens that one Program takes at most. A step of more runs several.
  int64_t longest_step() const { return steps_.front().tokens; }

 private:
  friend class DecodeSequence;
  struct StepProgram {
    int64_t tokens;
    std::unique_ptr<Executor> executor;
    std::vector<HostArray> io;  // over the arrays below
    bool picks_rows = false;    // makes the logits of head_rows_; else of every token
  };
  // What a recurrence keeps of an engine's only sequence, and the place for its copy.
  struct State {
    std::span<std::byte> now, copy;
  };
  // A rotary embedding that is another one for sequences of more than `near` tokens.
  struct LongRope {
    int64_t near;
    bool grows;  // with every further token; else there are two
  };
  DecodeEngine() = default;
  // Whether keys made for a sequence of one length are those of a sequence of the other.
  bool AreAlike(int64_t length, int64_t other) const;
  bool SwitchesBetween(int64_t length, int64_t other) const;
  // The sequence beside `but` that has most whole pages of the beginning of `sequence`, not counting its last token;
  // how many `tokens` these are. nullptr: there is none.
  const DecodeSequence* HolderOf(std::span<const int32_t> sequence, const DecodeSequence& but, int64_t* tokens) const;
  // The states of ops that do not rewind, of an engine of one sequence.
  void FindStates();
  void Begin(const Fed& fed);
  void TakeBack(std::span<const Fed> batch);
  const StepProgram& ProgramFor(int64_t tokens) const;

  int64_t context_ = 0, vocab_ = 0;
  std::vector<LongRope> long_ropes_;
  bool rewinds_ = true;        // whether a sequence can go back to all its beginnings (OpRule::rewinds)
  std::vector<State> states_;  // else those that can be copied; empty: none can
  ProgramSet programs_;
  std::unique_ptr<Arena> arena_;
  std::optional<CachePages> pages_;
  std::vector<std::unique_ptr<DecodeSequence>> sequences_;          // by slot
  std::vector<int32_t> token_, position_, slot_, document_length_;  // as many as the longest step takes
  std::vector<int32_t> head_rows_;                                  // as many as there are sequences
  std::vector<int32_t> page_table_;                                 // [sequences, pages of a context]
  std::vector<float> logits_;                                       // [sequences, V]
  std::vector<StepProgram> steps_;  // by descending number of tokens; the last takes one
};

}  // namespace temper
