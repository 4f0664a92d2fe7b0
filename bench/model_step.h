// A training step for benchmarks of meshes: compiled for one rank, with random weights and full rows, each one
// document.
#pragma once

#include <chrono>
#include <cmath>
#include <memory>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "base/philox.h"
#include "compile/train_step.h"
#include "device/communicator.h"
#include "format/json.h"
#include "model/families.h"
#include "model/model.h"
#include "program/buffer_names.h"
#include "runtime/executor.h"

namespace temper::bench {

template <class T>
T Must(Result<T> result) {
  TEMPER_CHECK(result.ok()) << result.status().message();
  return std::move(*result);
}
inline void Must(const Status& status) {
  TEMPER_CHECK(status.ok()) << status.message();
}

struct StepOf {
  std::string config;  // config.json's text
  DType dtype = DType::kBF16;
  int64_t row = 512, rows = 1;  // rows of a micro-batch of all ranks
  int threads = 1;
  Recompute recompute = Recompute::kNone;
  MeshSpec mesh;
};

class ModelStep {
 public:
  // `communicator` and `collectives` (for the mesh): of the rank; nullptr if it is alone. Both must outlive it.
  ModelStep(const StepOf& of, Communicator* communicator, KernelTable* collectives) : rows_(of.rows) {
    const auto model = Must(ModelFromConfig(Must(ParseJson(of.config, "config.json")), "config.json"));
    const Mesh& mesh = of.mesh.mesh;
    const auto forward_of = [&](bool training) {
      return model->Forward({.dtype = of.dtype, .tokens = of.row * of.rows, .row = of.row, .training = training});
    };
    Graph forward = forward_of(true);
    TrainAllWeights(&forward);
    const Graph eval = forward_of(false);
    programs_ = Must(CompileGraphs(TrainAndEval(forward, eval),
                                   {.recompute = of.recompute, .threads = of.threads, .mesh = of.mesh}))
                    .programs;
    CpuOptions options{.threads = of.threads};
    if (communicator != nullptr) {
      options.exchange = [communicator, mesh](AxisSet axes) { return communicator->MakeExchange(mesh, axes); };
    }
    kernels_ = MakeCpuKernels(options);
    arena_ = communicator != nullptr ? Arena::Over(Must(communicator->AllocateArena(train().arena_bytes)))
                                     : Must(Arena::Create(train().arena_bytes));
    executor_ = Must(Executor::Create(train(), *arena_, *kernels_, collectives));
    for (const Buffer& b : train().buffers) Fill(b, model->facts().vocab, of);
    for (const Buffer& b : train().buffers) {
      if (b.role != Role::kInput && b.role != Role::kOutput) continue;
      if (b.name == kScalarsBuffer) continue;
      io_.push_back({train().FindBuffer(b.name), arena_bytes(b)});
    }
  }

  const Program& train() const { return programs_.first(); }

  // Seconds of one optimizer step.
  double Run(Trace* trace = nullptr) {
    const auto begin = std::chrono::steady_clock::now();
    // Inputs are used in place: the arrays are the buffers themselves.
    executor_->TraceInto(trace);
    Must(executor_->Run(io_));
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  }

 private:
  std::span<std::byte> arena_bytes(const Buffer& b) {
    host_.push_back(std::vector<std::byte>(arena_->At(b.offset), arena_->At(b.offset) + b.type.bytes().v));
    return host_.back();
  }

  void Fill(const Buffer& b, int64_t vocab, const StepOf& of) {
    const View view = executor_->BufferView(train().FindBuffer(b.name));
    const RngKey key{.seed = 1, .name_hash = HashName(b.name)};
    if (b.name == kScalarsBuffer) {
      const std::span<double> scalars = view.as<double>();
      scalars[kScalarLearningRate] = 1e-4;
      scalars[kScalarBiasCorrection1] = scalars[kScalarBiasCorrection2] = 1;
      scalars[kScalarTokenCount] = static_cast<double>(of.row * rows_);
    } else if (b.role == Role::kInput && b.type.dtype == DType::kI32) {
      const ContextPart part = ContextPartOf(of.mesh.mesh, of.mesh.rank, of.row);
      const std::span<int32_t> tokens = view.as<int32_t>();
      for (size_t i = 0; i < tokens.size(); ++i) {
        const int64_t place = part.ranks > 1 ? part.PlaceOf(static_cast<int64_t>(i)) : static_cast<int64_t>(i);
        const int64_t position = place % of.row;
        tokens[i] = static_cast<int32_t>(b.name == "position"          ? position
                                         : b.name == "document_start"  ? place - position
                                         : b.name == "document_length" ? of.row
                                                                       : UniformAt(key, i) * static_cast<float>(vocab));
      }
    } else if (b.role == Role::kWeight) {
      const double scale = 0.02;
      DispatchFloat(b.type.dtype, [&]<class T>() {
        const std::span<T> x = view.as<T>();
        const bool norm = b.name.find("norm") != std::string::npos;
        for (size_t i = 0; i < x.size(); ++i) {
          x[i] = FromFloat<T>(static_cast<float>(scale * NormalAt(key, i) + (norm ? 1 : 0)));
        }
      });
    }
  }

  const int64_t rows_;
  ProgramSet programs_;
  std::unique_ptr<KernelTable> kernels_;
  std::unique_ptr<Arena> arena_;
  std::unique_ptr<Executor> executor_;
  std::vector<std::vector<std::byte>> host_;
  std::vector<HostArray> io_;
};

}  // namespace temper::bench
