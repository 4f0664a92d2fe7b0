#include "infer/decode_session.h"

#include <algorithm>

#include "compile/train_step.h"
#include "model/adapted_model.h"
#include "program/program_names.h"

namespace temper {
namespace {

// A prompt is fed in chunks of these sizes, largest first: at most 3 * 3 + 3 calls besides the full chunks, and no
// padding.
constexpr int64_t kChunks[] = {256, 64, 16, 4, 1};

}  // namespace

Result<ProgramSet> CompileDecoding(const Model& model, const DecodeSpec& spec, const ProcessMemory* available) {
  TEMPER_CHECK(spec.context > 0) << "context " << spec.context;
  const AdaptedModel adapted{
      .model = model, .trains = {.adapters = spec.adapter, .copies = spec.copies}, .base = spec.base};
  std::vector<Graph> graphs;
  std::vector<std::string> names;
  for (int64_t tokens : kChunks) {
    if (tokens > spec.context) continue;
    graphs.push_back(adapted.Forward({.dtype = spec.dtype, .tokens = tokens, .cache = spec.context}));
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

Result<std::unique_ptr<DecodeSession>> DecodeSession::Create(const Model& model, const DecodeSpec& spec,
                                                             KernelTable& kernels, Device* device) {
  TEMPER_ASSIGN_OR_RETURN(ProgramSet programs, CompileDecoding(model, spec));
  return Create(std::move(programs), spec.context, kernels, device);
}

Result<std::unique_ptr<DecodeSession>> DecodeSession::Create(ProgramSet programs, int64_t context, KernelTable& kernels,
                                                             Device* device, const FarTiers& far) {
  std::unique_ptr<DecodeSession> decoder(new DecodeSession());
  decoder->context_ = context;
  decoder->sequence_.resize(static_cast<size_t>(context));
  decoder->programs_ = std::move(programs);
  const Bytes arena_bytes = decoder->programs_.first().arena_bytes;
  TEMPER_ASSIGN_OR_RETURN(decoder->arena_, device ? Arena::On(*device, arena_bytes) : Arena::Create(arena_bytes));
  const auto tokens_of = [](const Program& program) {
    return program.buffers[static_cast<size_t>(program.FindBuffer(kTokenInput))].type.shape.elements();
  };
  decoder->token_.resize(static_cast<size_t>(tokens_of(decoder->programs_.first())));
  decoder->position_.resize(decoder->token_.size());
  decoder->document_length_.resize(decoder->token_.size());
  for (const Segment& segment : decoder->programs_.first().segments) {
    for (const Instruction& i : segment.instructions) {
      if (i.op != Op::kRopeTable || !i.attributes.Flag("document_length")) continue;
      decoder->long_ropes_.push_back({i.attributes.Int("near"), !i.attributes.Has("long_inv_freq")});
    }
  }
  for (const Program& program : decoder->programs_) {
    Step step{.tokens = tokens_of(program)};
    TEMPER_ASSIGN_OR_RETURN(step.executor, Executor::Create(program, *decoder->arena_, kernels, nullptr, far));
    const auto add = [&](const char* name, std::span<std::byte> bytes) {
      const int buffer = program.FindBuffer(name);
      if (buffer >= 0) step.io.push_back({buffer, bytes});  // positions are not read where nothing is rotated
    };
    const auto n = static_cast<size_t>(step.tokens);
    add(kTokenInput, std::as_writable_bytes(std::span(decoder->token_).first(n)));
    add(kPositionInput, std::as_writable_bytes(std::span(decoder->position_).first(n)));
    add(kDocumentLengthInput, std::as_writable_bytes(std::span(decoder->document_length_).first(n)));
    add(kLengthInput, std::as_writable_bytes(std::span(&decoder->fed_, 1)));
    const temper::Buffer& logits = program.buffers[static_cast<size_t>(program.FindBuffer(kLogitsOutput))];
    decoder->logits_.resize(static_cast<size_t>(logits.type.shape.elements()));
    add(kLogitsOutput, std::as_writable_bytes(std::span(decoder->logits_)));
    decoder->steps_.push_back(std::move(step));
  }
  return decoder;
}

DevicePart DecodeSession::Buffer(const std::string& name) const {
  const int index = programs_.first().FindBuffer(name);
  return index < 0 ? DevicePart() : steps_[0].executor->BufferPart(index);
}

bool DecodeSession::AreAlike(int64_t length, int64_t other) const {
  return !SwitchesBetween(length, other) &&
         std::none_of(long_ropes_.begin(), long_ropes_.end(),
                      [&](const LongRope& r) { return r.grows && std::max(length, other) > r.near; });
}

bool DecodeSession::SwitchesBetween(int64_t length, int64_t other) const {
  return std::any_of(long_ropes_.begin(), long_ropes_.end(),
                     [&](const LongRope& r) { return !r.grows && (length > r.near) != (other > r.near); });
}

int64_t DecodeSession::KeepPrefixOf(std::span<const int32_t> sequence) {
  announced_ = static_cast<int64_t>(sequence.size());
  const int64_t most = AreAlike(made_for_, announced_) ? std::min(length_, announced_ - 1) : 0;
  const auto begin = sequence_.begin();
  length_ = most <= 0 ? 0 : std::mismatch(begin, begin + most, sequence.begin()).first - begin;
  if (length_ == 0) made_for_ = 0;
  return length_;
}

Result<std::span<const float>> DecodeSession::Feed(std::span<const int32_t> tokens) {
  TEMPER_CHECK(!tokens.empty() && length_ + static_cast<int64_t>(tokens.size()) <= context_)
      << tokens.size() << " tokens after " << length_ << " of " << context_;
  std::copy(tokens.begin(), tokens.end(), sequence_.begin() + length_);
  const int64_t end = length_ + static_cast<int64_t>(tokens.size()), whole = std::max(announced_, end);
  if (SwitchesBetween(made_for_, whole)) length_ = made_for_ = 0;
  made_for_ = std::max(made_for_, whole);
  std::fill(document_length_.begin(), document_length_.end(), static_cast<int32_t>(whole));
  tokens = std::span(sequence_).subspan(static_cast<size_t>(length_), static_cast<size_t>(end - length_));
  while (!tokens.empty()) {
    const auto step = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const Step& s) { return s.tokens <= static_cast<int64_t>(tokens.size()); });
    const auto n = static_cast<size_t>(step->tokens);
    std::copy_n(tokens.begin(), n, token_.begin());
    fed_ = static_cast<int32_t>(length_);
    for (size_t i = 0; i < n; ++i) position_[i] = fed_ + static_cast<int32_t>(i);
    TEMPER_RETURN_IF_ERROR(step->executor->Run(step->io));
    length_ += step->tokens;
    tokens = tokens.subspan(n);
  }
  return std::span<const float>(logits_);
}

}  // namespace temper
