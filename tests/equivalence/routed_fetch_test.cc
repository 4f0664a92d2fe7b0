// A mixture whose weights live on the disk: a token fetches the matrices of the experts that it is routed to, and no
// others.
#include <gtest/gtest.h>

#include <atomic>

#include "decoder_under_test.h"

namespace temper::routed_fetch_test {
namespace {

using decoding::Decoder;
using decoding::RandomTokens;
using tiny::Must;

// Counts what is read.
class CountingStore final : public Store {
 public:
  explicit CountingStore(Bytes size) : store_(size) {}
  Bytes size() const override { return store_.size(); }
  Status Read(Bytes at, std::span<std::byte> to) override {
    read_ += std::ssize(to);
    return store_.Read(at, to);
  }
  Status Write(Bytes at, std::span<const std::byte> from) override { return store_.Write(at, from); }
  int64_t read() const { return read_; }

 private:
  tiny::MemoryStore store_;
  std::atomic<int64_t> read_ = 0;
};

// A decoder of the weights of a run, which are all on the disk.
struct DiskDecoder {
  std::unique_ptr<KernelTable> kernels = MakeCpuKernels({});
  std::unique_ptr<CountingStore> disk;
  std::unique_ptr<DecodeEngine> engine;
  DecodeSequence* session = nullptr;
  int64_t of_stacks = 0, of_others = 0;  // bytes

  DiskDecoder(const std::string& config, tiny::TinyRun& run, DType dtype) {
    ProgramSet programs = Must(
        CompileDecoding(*tiny::MakeModel(config),
                        {.dtype = dtype, .context = 64, .memory = {.weights = Tier::kDisk}, .joins_adapters = true}));
    disk = std::make_unique<CountingStore>(programs.first().disk.bytes);
    engine = Must(DecodeEngine::Create(std::move(programs), 64, *kernels, nullptr, {.disk = disk.get()}));
    session = engine->Open();
    for (const Buffer& b : run.train().buffers) {
      if (b.role != Role::kWeight) continue;
      const View source = run.Find(b.name);
      const auto bytes = static_cast<size_t>(source.type.bytes().v);
      const DevicePart target = engine->Buffer(b.name);
      Must(target.stream->CopyToDevice({source.data, bytes}, target.part.view.data));
      (b.type.shape.rank() == 3 ? of_stacks : of_others) += std::ssize(source.raw());
    }
  }
  std::vector<float> After(std::span<const int32_t> tokens) {
    const auto logits = Must(session->Feed(tokens));
    return {logits.begin(), logits.end()};
  }
};

struct Mixture {
  std::string config;
  int64_t experts, active;
};

TEST(RoutedFetch, ATokenReadsItsExpertsAloneAndNoBitChanges) {
  for (const Mixture& m : {Mixture{tiny::Qwen3MoeConfigText(), 6, 2}, {tiny::GptOssConfigText(), 6, 2}}) {
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      SCOPED_TRACE(m.config + std::string(ToString(dtype)));
      tiny::TinyRun run({.config = m.config, .dtype = dtype, .row = 32, .micro_batches = 1});
      Decoder device(m.config, run, {}, dtype, 64);
      DiskDecoder disk(m.config, run, dtype);
      ASSERT_GT(disk.of_stacks, 0);
      // More rows than experts, in all but the last chunk of one: stacks are fetched whole.
      const std::vector<int32_t> prompt = RandomTokens(21, 7);
      ASSERT_EQ(disk.After(prompt), device.After(prompt));
      for (const int32_t token : RandomTokens(6, 9)) {
        const int64_t before = disk.disk->read();
        ASSERT_EQ(disk.After({&token, 1}), device.After({&token, 1}));
        EXPECT_EQ(disk.disk->read() - before, disk.of_stacks / m.experts * m.active + disk.of_others);
      }
    }
  }
}

}  // namespace
}  // namespace temper::routed_fetch_test
