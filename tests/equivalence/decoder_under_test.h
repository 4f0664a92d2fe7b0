// For tests: a decoding engine with the weights of a tiny run.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "../tiny_run.h"
#include "infer/generator.h"

namespace temper::decoding {

struct Decoder {
  std::unique_ptr<KernelTable> kernels;
  std::unique_ptr<Arena> host;
  std::unique_ptr<tiny::MemoryStore> disk;
  std::unique_ptr<DecodeEngine> engine;
  DecodeSequence* session = nullptr;  // open, where there is one
  Bytes device_bytes, far_bytes;

  // With the weights of `run`.
  Decoder(const std::string& config, tiny::TinyRun& run, const std::vector<LoraModule>& adapter, DType dtype,
          int64_t context, const MemorySpec& memory = {}, int64_t sequences = 1, Isa isa = DetectIsa())
      : kernels(MakeCpuKernels({.isa = isa})) {
    const DecodeSpec spec{.dtype = dtype,
                          .context = context,
                          .sequences = sequences,
                          .adapter = adapter,
                          .memory = memory,
                          .joins_adapters = true};
    ProgramSet programs = tiny::Must(CompileDecoding(*tiny::MakeModel(config), spec));
    host = tiny::Must(Arena::Create(programs.first().host.bytes));
    disk = std::make_unique<tiny::MemoryStore>(programs.first().disk.bytes);
    device_bytes = programs.first().arena_bytes;
    far_bytes = programs.first().host.bytes + programs.first().disk.bytes;
    engine = tiny::Must(DecodeEngine::Create(std::move(programs), context, *kernels, nullptr,
                                             {.host = host.get(), .disk = disk.get()}));
    if (sequences == 1) session = engine->Open();
    for (const Buffer& b : run.train().buffers) {
      if (b.role != Role::kWeight && b.role != Role::kAdapter) continue;
      const DevicePart target = engine->Buffer(b.name);
      const View source = run.Find(b.name);
      TEMPER_CHECK(target.exists() && target.part.view.type == source.type) << b.name;
      const auto bytes = static_cast<size_t>(source.type.bytes().v);
      tiny::Must(target.stream->CopyToDevice({source.data, bytes}, target.part.view.data));
    }
  }

  std::vector<float> After(std::span<const int32_t> prompt) {
    const auto logits = tiny::Must(session->Feed(prompt));
    return {logits.begin(), logits.end()};
  }
};

inline std::vector<int32_t> RandomTokens(int64_t n, uint64_t seed) {
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < n; ++i) {
    tokens.push_back(static_cast<int32_t>(UniformAt({.seed = seed}, static_cast<uint64_t>(i)) * 160));
  }
  return tokens;
}

}  // namespace temper::decoding
