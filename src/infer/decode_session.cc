#include "infer/decode_session.h"

#include <fmt/format.h>

#include <algorithm>

#include "compile/train_step.h"

namespace temper {
namespace {

// A prompt is fed in chunks of these sizes, largest first: at most 3 * 3 + 3 calls besides the full chunks, and no
// padding.
constexpr int64_t kChunks[] = {256, 64, 16, 4, 1};

}  // namespace

Result<std::unique_ptr<DecodeSession>> DecodeSession::Create(const Model& model, const DecodeSpec& spec,
                                                             KernelTable& kernels) {
  TEMPER_CHECK(spec.context > 0) << "context " << spec.context;
  std::vector<Graph> graphs;
  std::vector<int64_t> sizes;
  for (int64_t tokens : kChunks) {
    if (tokens > spec.context) continue;
    Graph graph = model.Forward({.dtype = spec.dtype, .tokens = tokens, .cache = spec.context});
    if (!spec.adapter.empty()) graph = AddLora(graph, spec.adapter, /*dropout=*/0);
    graphs.push_back(std::move(graph));
    sizes.push_back(tokens);
  }
  std::vector<NamedGraph> named;
  for (size_t i = 0; i < graphs.size(); ++i) named.push_back({fmt::format("decode.{}", sizes[i]), &graphs[i]});

  std::unique_ptr<DecodeSession> decoder(new DecodeSession());
  decoder->context_ = spec.context;
  TEMPER_ASSIGN_OR_RETURN(decoder->programs_, CompileForward(named, spec.threads));
  TEMPER_ASSIGN_OR_RETURN(decoder->arena_, Arena::Create(decoder->programs_[0].arena_bytes));
  for (size_t i = 0; i < sizes.size(); ++i) {
    const Program& program = decoder->programs_[i];
    TEMPER_ASSIGN_OR_RETURN(auto executor, Executor::Create(program, *decoder->arena_, kernels));
    const auto view = [&](const char* name) { return executor->BufferView(program.FindBuffer(name)); };
    Step step{.tokens = sizes[i], .token = view(kTokenInput), .position = view(kPositionInput)};
    step.executor = std::move(executor);
    decoder->steps_.push_back(std::move(step));
  }
  return decoder;
}

View DecodeSession::Buffer(const std::string& name) const {
  const int index = programs_[0].FindBuffer(name);
  return index < 0 ? View{} : steps_[0].executor->BufferView(index);
}

Result<std::span<const float>> DecodeSession::Feed(std::span<const int32_t> tokens) {
  TEMPER_CHECK(!tokens.empty() && length_ + static_cast<int64_t>(tokens.size()) <= context_)
      << tokens.size() << " tokens after " << length_ << " of " << context_;
  while (!tokens.empty()) {
    const auto step = std::find_if(steps_.begin(), steps_.end(),
                                   [&](const Step& s) { return s.tokens <= static_cast<int64_t>(tokens.size()); });
    const auto n = static_cast<size_t>(step->tokens);
    std::copy_n(tokens.begin(), n, step->token.as<int32_t>().begin());
    const std::span<int32_t> position = step->position.as<int32_t>();
    for (size_t i = 0; i < n; ++i) position[i] = static_cast<int32_t>(length_ + static_cast<int64_t>(i));
    Buffer(kLengthInput).as<int32_t>()[0] = static_cast<int32_t>(length_);
    TEMPER_RETURN_IF_ERROR(step->executor->Run({}));
    length_ += step->tokens;
    tokens = tokens.subspan(n);
  }
  return std::span<const float>(Buffer(kLogitsOutput).as<float>());
}

}  // namespace temper
