#include "infer/decode_engine.h"

#include <algorithm>

#include "compile/train_step.h"
#include "graph/named_ops.h"
#include "graph/ops/attention_cache.h"
#include "graph/rule.h"
#include "model/adapted_model.h"
#include "program/program_names.h"

namespace temper {
namespace {

// Steps of these sizes, largest first, and of as many tokens as there are sequences.
constexpr int64_t kSteps[] = {256, 64, 16, 4, 1};
// Up to this many tokens a step waits for the weights, whether all its tokens stand for something or not.
constexpr int64_t kPaddedStep = 16;
// Recurrent states are copied where a run of a prompt ends so many tokens before the prompt's end, or more. The next
// prompt of a conversation differs behind that: chat templates end a prompt with the header of an answer, which may
// open its reasoning (ChatML: 5 tokens), and print the same turn without its reasoning later.
constexpr int64_t kCopiedBeforeEnd = 16;

std::vector<int64_t> StepsFor(int64_t context, int64_t sequences) {
  std::vector<int64_t> steps;
  for (const int64_t tokens : kSteps) {
    if (tokens <= context * sequences) steps.push_back(tokens);
  }
  if (std::find(steps.begin(), steps.end(), sequences) == steps.end()) steps.push_back(sequences);
  std::sort(steps.rbegin(), steps.rend());
  return steps;
}

bool IsCache(const Buffer& buffer) {
  return buffer.role == Role::kCache && buffer.name.starts_with(kCachePrefix);
}

}  // namespace

Result<ProgramSet> CompileDecoding(const Model& model, const DecodeSpec& spec, const ProcessMemory* available) {
  TEMPER_CHECK(spec.context > 0 && spec.sequences > 0) << "context " << spec.context << " of " << spec.sequences;
  const AdaptedModel adapted{.model = model,
                             .trains = {.adapters = spec.adapter, .copies = spec.copies, .rows = spec.rows},
                             .base = spec.base,
                             .norms = RowNorms::kLoaded};
  std::vector<Graph> graphs;
  std::vector<std::string> names;
  for (const int64_t tokens : StepsFor(spec.context, spec.sequences)) {
    graphs.push_back(
        adapted.Forward({.dtype = spec.dtype, .tokens = tokens, .cache = spec.context, .sequences = spec.sequences}));
    names.push_back(ProgramName(ProgramKind::kDecode, tokens));
  }
  std::vector<RunGraph> named;
  for (size_t i = 0; i < graphs.size(); ++i) named.push_back({names[i], &graphs[i]});
  StepSpec step;
  step.threads = spec.threads;
  step.memory = spec.memory;
  step.joins_adapters = spec.joins_adapters;
  TEMPER_ASSIGN_OR_RETURN(CompiledPrograms compiled, available != nullptr
                                                         ? CompileForwardWithin(*available, named, step)
                                                         : CompileGraphs(named, step));
  return std::move(compiled.programs);
}

Bytes CacheBytesOf(const ProgramSet& programs) {
  Bytes bytes;
  for (const Buffer& b : programs.first().buffers) {
    if (IsCache(b)) bytes += b.type.bytes();
  }
  return bytes;
}

Result<std::unique_ptr<DecodeEngine>> DecodeEngine::Create(const Model& model, const DecodeSpec& spec,
                                                           KernelTable& kernels, Device* device) {
  TEMPER_ASSIGN_OR_RETURN(ProgramSet programs, CompileDecoding(model, spec));
  return Create(std::move(programs), spec.context, kernels, device);
}

Result<std::unique_ptr<DecodeEngine>> DecodeEngine::Create(ProgramSet programs, int64_t context, KernelTable& kernels,
                                                           Device* device, const FarTiers& far) {
  std::unique_ptr<DecodeEngine> engine(new DecodeEngine());
  DecodeEngine& e = *engine;
  e.context_ = context;
  e.programs_ = std::move(programs);
  const Program& longest = e.programs_.first();
  TEMPER_ASSIGN_OR_RETURN(e.arena_,
                          device ? Arena::On(*device, longest.arena_bytes) : Arena::Create(longest.arena_bytes));
  const auto type_of = [](const Program& program, const char* name) -> const TensorType& {
    return program.buffers[static_cast<size_t>(program.FindBuffer(name))].type;
  };
  const auto tokens_of = [&](const Program& program) { return type_of(program, kTokenInput).shape.elements(); };
  for (std::vector<int32_t>* column : {&e.token_, &e.position_, &e.slot_, &e.document_length_}) {
    column->resize(static_cast<size_t>(tokens_of(longest)));
  }
  // The longest step makes the logits of one token of each sequence. A model without attention reads no pages.
  const int64_t slots = type_of(longest, kLogitsOutput).shape[0], slot_pages = CachePagesOf(context);
  e.page_table_.assign(static_cast<size_t>(slots * slot_pages), -1);
  e.pages_.emplace(slots * slot_pages);
  e.head_rows_.resize(static_cast<size_t>(slots));
  e.vocab_ = type_of(longest, kLogitsOutput).shape[1];
  e.logits_.resize(static_cast<size_t>(slots * e.vocab_));
  for (int64_t slot = 0; slot < slots; ++slot) {
    e.sequences_.emplace_back(new DecodeSequence(e, static_cast<int>(slot)));
    DecodeSequence& sequence = *e.sequences_.back();
    sequence.pages_ =
        std::span(e.page_table_).subspan(static_cast<size_t>(slot * slot_pages), static_cast<size_t>(slot_pages));
    sequence.tokens_.resize(static_cast<size_t>(context));
    sequence.logits_.resize(static_cast<size_t>(e.vocab_));
  }
  for (const Segment& segment : longest.segments) {
    for (const Instruction& i : segment.instructions) {
      e.rewinds_ = e.rewinds_ && RuleOf(i.op).rewinds;
      if (i.op != Op::kRopeTable || !i.attributes.Flag("document_length")) continue;
      e.long_ropes_.push_back({i.attributes.Int("near"), !i.attributes.Has("long_inv_freq")});
    }
  }
  for (const Program& program : e.programs_) {
    StepProgram step{.tokens = tokens_of(program)};
    TEMPER_ASSIGN_OR_RETURN(step.executor, Executor::Create(program, *e.arena_, kernels, nullptr, far));
    const auto add = [&](const char* name, auto& array) {
      const int buffer = program.FindBuffer(name);
      if (buffer < 0) return false;
      const auto n = static_cast<size_t>(program.buffers[static_cast<size_t>(buffer)].type.shape.elements());
      TEMPER_CHECK(n <= array.size()) << name << " has " << n << " elements of " << array.size();
      step.io.push_back({buffer, std::as_writable_bytes(std::span(array).first(n))});
      return true;
    };
    add(kTokenInput, e.token_);
    add(kPositionInput, e.position_);
    add(kSlotInput, e.slot_);
    add(kPageTableInput, e.page_table_);
    add(kDocumentLengthInput, e.document_length_);
    step.picks_rows = add(kHeadRowsInput, e.head_rows_);
    add(kLogitsOutput, e.logits_);
    e.steps_.push_back(std::move(step));
  }
  if (!e.rewinds_ && slots == 1) e.FindStates();
  return engine;
}

void DecodeEngine::FindStates() {
  for (const temper::Buffer& buffer : programs_.first().buffers) {
    if (buffer.role != Role::kCache || !buffer.name.starts_with(kStatePrefix)) continue;
    const DevicePart part = Buffer(buffer.name);
    TEMPER_CHECK(buffer.type.shape[0] == StatesOf(1) && part.exists()) << buffer.name;
    if (!part.on_host()) {
      states_.clear();
      return;
    }
    const auto bytes = static_cast<size_t>(buffer.type.bytes().v) / 2;
    const std::span all(static_cast<std::byte*>(part.part.view.data), 2 * bytes);
    states_.push_back({.now = all.first(bytes), .copy = all.last(bytes)});
  }
}

DevicePart DecodeEngine::Buffer(const std::string& name) const {
  const int index = programs_.first().FindBuffer(name);
  return index < 0 ? DevicePart() : steps_[0].executor->BufferPart(index);
}

DecodeSequence* DecodeEngine::Open() {
  for (const auto& sequence : sequences_) {
    if (sequence->open_) continue;
    sequence->open_ = true;
    return sequence.get();
  }
  return nullptr;
}

void DecodeEngine::Close(DecodeSequence* sequence) {
  TEMPER_CHECK(&sequence->engine_ == this && sequence->open_);
  sequence->Reset();
  sequence->open_ = false;
}

bool DecodeEngine::AreAlike(int64_t length, int64_t other) const {
  return !SwitchesBetween(length, other) &&
         std::none_of(long_ropes_.begin(), long_ropes_.end(),
                      [&](const LongRope& r) { return r.grows && std::max(length, other) > r.near; });
}

bool DecodeEngine::SwitchesBetween(int64_t length, int64_t other) const {
  return std::any_of(long_ropes_.begin(), long_ropes_.end(),
                     [&](const LongRope& r) { return !r.grows && (length > r.near) != (other > r.near); });
}

// Keys that depend on their sequence's length are not shared, nor are recurrent states, which are those of a whole
// sequence.
const DecodeSequence* DecodeEngine::HolderOf(std::span<const int32_t> sequence, const DecodeSequence& but,
                                             int64_t* tokens) const {
  *tokens = 0;
  if (!long_ropes_.empty() || !rewinds_ || sequence.empty()) return nullptr;
  const DecodeSequence* holder = nullptr;
  for (const auto& other : sequences_) {
    if (other.get() == &but) continue;
    const int64_t most = std::min<int64_t>(other->length_, static_cast<int64_t>(sequence.size()) - 1);
    const auto begin = other->tokens_.begin();
    const int64_t common = std::mismatch(begin, begin + most, sequence.begin()).first - begin;
    const int64_t whole = common / kCachePage * kCachePage;
    if (whole <= *tokens) continue;
    *tokens = whole;
    holder = other.get();
  }
  return holder;
}

void DecodeEngine::Begin(const Fed& fed) {
  DecodeSequence& s = *fed.sequence;
  const int64_t end = s.length_ + static_cast<int64_t>(fed.tokens.size());
  TEMPER_CHECK(&s.engine_ == this && s.open_ && s.fed_to_ == s.length_ && !fed.tokens.empty() && end <= context_)
      << fed.tokens.size() << " tokens after " << s.length_ << " of " << context_;
  std::copy(fed.tokens.begin(), fed.tokens.end(), s.tokens_.begin() + s.length_);
  const int64_t whole = std::max(s.announced_, end);
  if (SwitchesBetween(s.made_for_, whole)) s.CutTo(0);
  s.made_for_ = std::max(s.made_for_, whole);
  s.begun_ = s.length_;
  s.fed_to_ = end;
  for (; s.taken_ * kCachePage < end; ++s.taken_) s.pages_[static_cast<size_t>(s.taken_)] = pages_->Take();
}

// After a step that failed: what it wrote counts for nothing.
void DecodeEngine::TakeBack(std::span<const Fed> batch) {
  for (const Fed& fed : batch) {
    DecodeSequence& s = *fed.sequence;
    s.CutTo(rewinds_ ? s.begun_ : s.StatesBackTo(s.begun_));
  }
}

const DecodeEngine::StepProgram& DecodeEngine::ProgramFor(int64_t tokens) const {
  size_t i = 0;
  while (i + 1 < steps_.size() && steps_[i + 1].tokens >= tokens) ++i;  // the shortest that takes all, or the longest
  if (tokens < steps_[i].tokens && steps_[i].tokens > kPaddedStep) ++i;
  return steps_[i];
}

Status DecodeEngine::Step(std::span<const Fed> batch) {
  int64_t left = 0;
  for (const Fed& fed : batch) {
    Begin(fed);
    left += fed.sequence->fed_to_ - fed.sequence->length_;
  }
  for (size_t first = 0; left > 0;) {
    const StepProgram& step = ProgramFor(left);
    const auto room = static_cast<size_t>(step.tokens);
    size_t n = 0, heads = 0, end = first;  // entries [first, end) end in this run
    for (size_t at = first; at < batch.size() && n < room; ++at) {
      DecodeSequence& s = *batch[at].sequence;
      const auto whole = static_cast<int32_t>(std::max(s.announced_, s.fed_to_));
      for (; s.length_ < s.fed_to_ && n < room; ++n, ++s.length_) {
        token_[n] = s.tokens_[static_cast<size_t>(s.length_)];
        position_[n] = static_cast<int32_t>(s.length_);
        slot_[n] = s.slot_;
        document_length_[n] = whole;
      }
      if (s.length_ < s.fed_to_) break;
      head_rows_[heads++] = static_cast<int32_t>(n - 1);
      end = at + 1;
    }
    left -= static_cast<int64_t>(n);
    for (; n < room; ++n) {
      token_[n] = position_[n] = 0;
      slot_[n] = -1;
      document_length_[n] = 1;
    }
    std::fill(head_rows_.begin() + static_cast<std::ptrdiff_t>(heads), head_rows_.end(), 0);
    if (Status run = step.executor->Run(step.io); !run.ok()) {
      TakeBack(batch);
      return run;
    }
    if (DecodeSequence& s = *batch[first].sequence; s.length_ <= s.announced_ - kCopiedBeforeEnd) s.CopyStates();
    for (size_t i = 0; i < heads; ++i) {
      const auto row = static_cast<int64_t>(step.picks_rows ? i : static_cast<size_t>(head_rows_[i]));
      std::copy_n(logits_.begin() + row * vocab_, vocab_, batch[first + i].sequence->logits_.begin());
    }
    first = end;
  }
  return OkStatus();
}

DecodeSequence::DecodeSequence(DecodeEngine& engine, int slot) : engine_(engine), slot_(slot) {}

int64_t DecodeSequence::context() const {
  return engine_.context_;
}

void DecodeSequence::Reset() {
  CutTo(0);
  announced_ = 0;
}

// Keeps the first `length` tokens, or fewer: others may share the page behind which the next token would be written.
void DecodeSequence::CutTo(int64_t length) {
  CachePages& pages = *engine_.pages_;
  const auto drop = [&] { pages.Release(pages_[static_cast<size_t>(--taken_)]); };
  while (taken_ > 0 && (taken_ - 1) * kCachePage >= length) drop();
  if (length % kCachePage != 0 && pages.IsShared(pages_[static_cast<size_t>(taken_ - 1)])) {
    drop();
    length = taken_ * kCachePage;
  }
  length_ = fed_to_ = length;
  if (length_ == 0) made_for_ = 0;
  if (length_ < copied_) copied_ = 0;
}

void DecodeSequence::CopyStates() {
  if (engine_.states_.empty()) return;
  for (const DecodeEngine::State& state : engine_.states_) {
    std::copy(state.now.begin(), state.now.end(), state.copy.begin());
  }
  copied_ = length_;
}

int64_t DecodeSequence::StatesBackTo(int64_t length) {
  if (copied_ == 0 || copied_ > length) return 0;
  for (const DecodeEngine::State& state : engine_.states_) {
    std::copy(state.copy.begin(), state.copy.end(), state.now.begin());
  }
  return copied_;
}

int64_t DecodeSequence::KeepPrefixOf(std::span<const int32_t> sequence) {
  announced_ = static_cast<int64_t>(sequence.size());
  const int64_t most = engine_.AreAlike(made_for_, announced_) ? std::min(length_, announced_ - 1) : 0;
  const auto begin = tokens_.begin();
  int64_t kept = most <= 0 ? 0 : std::mismatch(begin, begin + most, sequence.begin()).first - begin;
  if (!engine_.rewinds_ && kept < length_) {
    kept = StatesBackTo(kept);
  } else {
    CopyStates();
  }
  int64_t shared = 0;
  const DecodeSequence* holder = engine_.HolderOf(sequence, *this, &shared);
  if (shared <= kept) {
    CutTo(kept);
    return length_;
  }
  CutTo(kept / kCachePage * kCachePage);
  for (; taken_ * kCachePage < shared; ++taken_) {
    const int32_t page = holder->pages_[static_cast<size_t>(taken_)];
    engine_.pages_->Share(page);
    pages_[static_cast<size_t>(taken_)] = page;
  }
  std::copy_n(sequence.begin(), shared, tokens_.begin());
  length_ = fed_to_ = shared;
  return length_;
}

bool DecodeSequence::MakesCacheAgainFor(int64_t length) const {
  return length_ > 0 && engine_.SwitchesBetween(made_for_, length);
}

Result<std::span<const float>> DecodeSequence::Feed(std::span<const int32_t> tokens) {
  const DecodeEngine::Fed fed{this, tokens};
  TEMPER_RETURN_IF_ERROR(engine_.Step({&fed, 1}));
  return logits();
}

}  // namespace temper
