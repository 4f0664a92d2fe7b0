// The "train" Program of a TinyRun on a device, with what it has on the host and on the disk beside it.
#pragma once

#include "device/device.h"
#include "tiny_run.h"

namespace temper {

using tiny::Must;

// With weights and states as the TinyRun has them when this is made.
class DeviceRun {
 public:
  DeviceRun(const tiny::RunSpec& spec, tiny::TinyRun& host, Device& device, KernelTable* collectives = nullptr)
      : spec_(spec), device_(device) {
    const Program& planned = host.train();
    arena_ = Must(Arena::On(device_, planned.arena_bytes));
    host_kernels_ = MakeCpuKernels({.threads = spec.threads, .isa = spec.isa});
    host_ = Must(Arena::Create(planned.host.bytes));
    Must(host_->PinFor(device_));
    disk_ = std::make_unique<tiny::MemoryStore>(planned.disk.bytes);
    executor_ = Must(Executor::Create(
        planned, *arena_, device_.kernels(), collectives,
        {.host = host_.get(), .disk = disk_.get(), .host_kernels = host_kernels_.get(), .host_threads = spec.threads}));
    for (const auto& [name, bytes] : host.State()) Must(executor_->Write(program().FindBuffer(name), bytes));
    losses_.resize(static_cast<size_t>(spec.local_tokens() * spec.micro_batches));
    data_rank_ = host.data_rank();
    rng_.resize(static_cast<size_t>(spec.micro_batches * kNumRngWords));
  }

  Status Step(tiny::Batch& batch, Trace* trace = nullptr) {
    const double t = static_cast<double>(++step_);
    const double scalars[kNumScalars] = {1e-2, 1 - std::pow(0.9, t), 1 - std::pow(0.999, t),
                                         static_cast<double>(batch.supervised)};
    TEMPER_RETURN_IF_ERROR(executor_->Write(program().FindBuffer(kScalarsBuffer), std::as_bytes(std::span(scalars))));
    for (int m = 0; m < spec_.micro_batches; ++m) {
      const int64_t words[] = {42, step_ - 1, (m * spec_.data_ranks() + data_rank_) * spec_.row * spec_.local_rows()};
      std::copy_n(words, kNumRngWords, rng_.begin() + m * kNumRngWords);
    }
    std::vector<HostArray> io;
    const auto add = [&](const char* name, auto& array) {
      const int buffer = program().FindBuffer(name);
      if (buffer >= 0) io.push_back({buffer, std::as_writable_bytes(std::span(array))});
    };
    add(kTokenInput, batch.token);
    add(kTargetInput, batch.target);
    add(kPositionInput, batch.position);
    add(kDocumentStartInput, batch.document_start);
    add(kDocumentLengthInput, batch.document_length);
    add(kRngInput, rng_);
    add(Sft().reports[0].output, losses_);
    executor_->TraceInto(trace);
    return executor_->Run(io);
  }

  std::map<std::string, std::vector<std::byte>> State() const {
    std::map<std::string, std::vector<std::byte>> state;
    for (size_t i = 0; i < program().buffers.size(); ++i) {
      const Buffer& b = program().buffers[i];
      if (b.role == Role::kInput || b.role == Role::kOutput) continue;
      std::vector<std::byte>& bytes = state[b.name];
      bytes.resize(static_cast<size_t>(b.type.bytes().v));
      Must(executor_->Read(static_cast<int>(i), bytes));
    }
    return state;
  }
  const std::vector<float>& losses() const { return losses_; }
  const Program& program() const { return executor_->program(); }
  Executor& executor() { return *executor_; }

 private:
  const tiny::RunSpec spec_;
  Device& device_;
  std::unique_ptr<KernelTable> host_kernels_;
  std::unique_ptr<Arena> arena_, host_;
  std::unique_ptr<Store> disk_;
  std::unique_ptr<Executor> executor_;
  std::vector<float> losses_;
  std::vector<int64_t> rng_;
  int64_t step_ = 0, data_rank_ = 0;
};

}  // namespace temper
