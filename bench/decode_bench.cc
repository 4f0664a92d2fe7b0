// What does a token cost when decoding: by how much context does it grow, beyond the bytes that attention must read,
// and what do sequences decoded together gain? Random weights; the shape of SmolLM2-135M unless --config names a
// config.json.
//   bench/decode_bench [--config FILE] [--dtype bf16] [--threads 2] [--batch 8] [--tokens 32]
#include <fmt/core.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>

#include "base/team.h"
#include "bench/measure.h"
#include "bench/model_step.h"
#include "infer/decode_engine.h"

namespace temper {
namespace {

using bench::Must;
using Clock = std::chrono::steady_clock;

constexpr char kConfig[] = R"({"architectures": ["LlamaForCausalLM"], "vocab_size": 49152, "hidden_size": 576,
  "num_hidden_layers": 30, "num_attention_heads": 9, "num_key_value_heads": 3, "intermediate_size": 1536,
  "max_position_embeddings": 8192, "tie_word_embeddings": true})";
constexpr int64_t kShort = 256, kMiddle = 1024, kLong = 4096;

struct Options {
  std::string config = kConfig;
  DType dtype = DType::kBF16;
  int threads = 2;
  int64_t batch = 8, tokens = 32;
};

struct Decoder {
  std::unique_ptr<KernelTable> kernels;
  std::unique_ptr<DecodeEngine> engine;
  std::vector<DecodeSequence*> sequences;
  Bytes cache, weights;
  int64_t context, vocab;

  Decoder(const Options& options, int64_t n, int64_t longest) : context(longest + options.tokens + 1) {
    const auto model = Must(ModelFromConfig(Must(ParseJson(options.config, "config.json")), "config.json"));
    vocab = model->facts().vocab;
    const DecodeSpec spec{.dtype = options.dtype, .context = context, .sequences = n, .threads = options.threads};
    ProgramSet programs = Must(CompileDecoding(*model, spec));
    cache = CacheBytesOf(programs);
    std::vector<std::string> names;
    for (const Buffer& b : programs.first().buffers) {
      if (b.role != Role::kWeight) continue;
      names.push_back(b.name);
      weights += b.type.bytes();
    }
    kernels = MakeCpuKernels({.threads = options.threads});
    engine = Must(DecodeEngine::Create(std::move(programs), context, *kernels));
    for (const std::string& name : names) {
      const View view = engine->Buffer(name).part.view;
      std::mt19937 random(static_cast<uint32_t>(HashName(name)));
      for (int64_t i = 0; i < view.type.shape.elements(); ++i) {
        const float x = (static_cast<float>(random() % 2048) / 1024 - 1) / 16;
        if (options.dtype == DType::kF32) reinterpret_cast<float*>(view.data)[i] = x;
        if (options.dtype == DType::kBF16) reinterpret_cast<bf16*>(view.data)[i] = ToBF16(x);
      }
    }
    for (int64_t i = 0; i < n; ++i) sequences.push_back(engine->Open());
  }

  // Least seconds of a step of a token of each of the first `n` sequences, which have `length` before.
  double SecondsPerStep(int64_t n, int64_t length, int64_t steps) {
    std::vector<int32_t> prompt(static_cast<size_t>(length));
    for (int64_t i = 0; i < n; ++i) {
      DecodeSequence& s = *sequences[static_cast<size_t>(i)];
      s.Reset();
      // Other tokens in each: nothing is shared.
      for (size_t t = 0; t < prompt.size(); ++t)
        prompt[t] = static_cast<int32_t>((t * 31 + static_cast<size_t>(i) * 7 + 1) % static_cast<size_t>(vocab));
      Must(s.Feed(prompt).status());
    }
    const int32_t token = 5;
    std::vector<DecodeEngine::Fed> batch;
    for (int64_t i = 0; i < n; ++i) batch.push_back({sequences[static_cast<size_t>(i)], {&token, 1}});
    std::vector<double> seconds;
    for (int64_t i = 0; i < steps; ++i) {
      const auto begin = Clock::now();
      Must(engine->Step(batch));
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
    return *std::min_element(seconds.begin(), seconds.end());
  }
};

// Bytes per second at which all threads read memory, the best of several passes.
double ReadRate(int threads) {
  constexpr int64_t kWords = int64_t{1} << 27;  // 512 MiB
  std::vector<float> words(kWords, 1.0f);
  std::vector<double> sums(static_cast<size_t>(threads) * 16);
  double best = 0;
  for (int pass = 0; pass < 5; ++pass) {
    const auto begin = Clock::now();
    RunTeam(threads, [&](TeamMember self) {
      const int64_t part = kWords / self.size;
      const float* const at = words.data() + part * self.index;
      float sum[64] = {};
      for (int64_t i = 0; i + 64 <= part; i += 64) {
        for (int64_t j = 0; j < 64; ++j) sum[j] += at[i + j];
      }
      for (const float x : sum) sums[static_cast<size_t>(self.index) * 16] += x;
    });
    best = std::max(best, kWords * 4.0 / std::chrono::duration<double>(Clock::now() - begin).count());
  }
  TEMPER_CHECK(sums[0] > 0);
  return best;
}

void Run(const Options& options) {
  const double rate = ReadRate(options.threads);
  fmt::print("memory is read at {:.1f} GB/s by {} threads\n", rate * 1e-9, options.threads);
  Decoder one(options, 1, kLong);
  const double near = one.SecondsPerStep(1, kShort, options.tokens);
  const double far = one.SecondsPerStep(1, kLong, options.tokens);
  // What attention reads more at the long context: its rows of the cache.
  const double more =
      static_cast<double>(one.cache.v) / static_cast<double>((one.context + 63) / 64 * 64) * (kLong - kShort);
  fmt::print("{} of weights, {} of cache\n", ToString(one.weights), ToString(one.cache));
  fmt::print(
      "one sequence: {:.2f} ms a token at {}, {:.2f} ms at {}; {:.1f} MB more to read take {:.2f} ms: {:.2f} x\n",
      near * 1e3, kShort, far * 1e3, kLong, more * 1e-6, more / rate * 1e3, (far - more / rate) / near);
  std::fflush(stdout);
  Decoder many(options, options.batch, kMiddle);
  for (const int64_t length : {kShort, kMiddle}) {
    const double alone = many.SecondsPerStep(1, length, options.tokens);
    const double seconds = many.SecondsPerStep(options.batch, length, options.tokens);
    fmt::print("at {:4}: {:6.1f} tokens/s alone, {:6.1f} tokens/s of {} together: {:.2f} x\n", length, 1 / alone,
               static_cast<double>(options.batch) / seconds, options.batch,
               alone * static_cast<double>(options.batch) / seconds);
  }
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  using namespace temper;
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string flag = argv[i];
    if (flag == "--config") {
      std::stringstream text;
      text << std::ifstream(argv[i + 1]).rdbuf();
      options.config = text.str();
    }
    if (flag == "--dtype") options.dtype = std::strcmp(argv[i + 1], "f32") == 0 ? DType::kF32 : DType::kBF16;
    if (flag == "--threads") options.threads = std::atoi(argv[i + 1]);
    if (flag == "--batch") options.batch = std::atoi(argv[i + 1]);
    if (flag == "--tokens") options.tokens = std::atoi(argv[i + 1]);
  }
  Run(options);
  return 0;
}
