// A device of which the host can see nothing: its addresses may not be touched (a page fault ends the test that tries),
// and what is enqueued is done as late as the contract allows, when somebody synchronizes. Its kernels are those of the
// table it is given; they find the same memory under other addresses.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "device/device.h"

namespace temper {

class ApartDevice final : public Device, private Stream, private KernelTable {
 public:
  // `kernels` must outlive the device.
  explicit ApartDevice(KernelTable& kernels) : inner_(kernels) {}
  ~ApartDevice() override {
    for (const Mapping& m : mappings_) {
      munmap(m.address, m.size);
      munmap(m.memory, m.size);
    }
  }

  const std::string& name() const override { return name_; }
  Stream& stream() override { return *this; }
  KernelTable& kernels() override { return *this; }
  Result<std::span<std::byte>> Allocate(Bytes size) override {
    const auto bytes = (static_cast<size_t>(size.v) + 4095) / 4096 * 4096;
    const int file = memfd_create("apart", 0);
    TEMPER_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) << bytes;
    const auto map = [&](int access) {
      void* const at = mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
      TEMPER_CHECK(at != MAP_FAILED) << bytes;
      return static_cast<std::byte*>(at);
    };
    mappings_.push_back({map(PROT_NONE), map(PROT_READ | PROT_WRITE), bytes});
    close(file);
    return std::span(mappings_.back().address, static_cast<size_t>(size.v));
  }

  void Release(std::span<std::byte> memory) override {
    const auto m = std::find_if(mappings_.begin(), mappings_.end(),
                                [&](const Mapping& mapping) { return mapping.address == memory.data(); });
    TEMPER_CHECK(m != mappings_.end()) << "memory that is not the device's";
    TEMPER_CHECK(queue_.empty()) << "memory is given back that work is waiting to use";
    munmap(m->address, m->size);
    munmap(m->memory, m->size);
    mappings_.erase(m);
  }
  Result<std::unique_ptr<Stream>> OpenStream() override {
    return std::unique_ptr<Stream>(std::make_unique<Copies>(this));
  }

  // Recordings made, and how often one was replayed.
  int recorded() const { return recorded_; }
  int replayed() const { return replayed_; }
  size_t waiting() const { return queue_.size(); }
  int synchronized() const { return synchronized_; }

 private:
  struct Mapping {
    std::byte *address, *memory;  // as the host knows it, as kernels do
    size_t size;
  };

  class Deferred final : public Kernel {
   public:
    Deferred(ApartDevice* device, std::unique_ptr<Kernel> kernel, size_t inputs, size_t outputs)
        : device_(*device), kernel_(std::move(kernel)), inputs_(inputs), outputs_(outputs) {}
    Status Run(const KernelArgs& args) override {
      const auto memory = [this](std::byte* const* addresses, size_t n) {
        std::vector<std::byte*> found;
        for (size_t i = 0; i < n; ++i) found.push_back(device_.MemoryAt(addresses[i]));
        return found;
      };
      return device_.Enqueue([=, this, in = memory(args.inputs, inputs_), out = memory(args.outputs, outputs_),
                              workspace = device_.MemoryAt(args.workspace)] {
        return kernel_->Run({in.data(), out.data(), workspace, args.rng_name_hash});
      });
    }
    bool replayable() const override { return kernel_->replayable(); }

   private:
    ApartDevice& device_;
    const std::unique_ptr<Kernel> kernel_;
    const size_t inputs_, outputs_;
  };

  // Beside the device's own queue: for a thread of its own.
  class Copies final : public Stream {
   public:
    explicit Copies(ApartDevice* device) : device_(*device) {}
    Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
      queue_.emplace_back(device_.MemoryAt(device), host.data(), host.size());
      return OkStatus();
    }
    Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
      queue_.emplace_back(host.data(), device_.MemoryAt(device), host.size());
      return OkStatus();
    }
    Status Synchronize() override {
      for (const auto& [to, from, bytes] : queue_) std::memcpy(to, from, bytes);
      queue_.clear();
      return OkStatus();
    }

   private:
    ApartDevice& device_;
    std::vector<std::tuple<std::byte*, const std::byte*, size_t>> queue_;
  };

  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    TEMPER_ASSIGN_OR_RETURN(auto kernel, inner_.Make(spec));
    return std::unique_ptr<Kernel>(
        std::make_unique<Deferred>(this, std::move(kernel), spec.inputs.size(), spec.outputs.size()));
  }

  Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
    return Enqueue([host, to = MemoryAt(device)] {
      if (!host.empty()) std::memcpy(to, host.data(), host.size());
      return OkStatus();
    });
  }
  Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
    return Enqueue([host, from = MemoryAt(device)] {
      if (!host.empty()) std::memcpy(host.data(), from, host.size());
      return OkStatus();
    });
  }
  Status Synchronize() override {
    for (const auto& work : queue_) {
      if (failed_.ok()) failed_ = work();
    }
    queue_.clear();
    ++synchronized_;
    return failed_;
  }

  class Recorded final : public Recording {
   public:
    explicit Recorded(ApartDevice* device) : device_(*device) {}
    Status Replay() override {
      ++device_.replayed_;
      for (const auto& each : work) TEMPER_RETURN_IF_ERROR(device_.Enqueue(each));
      return OkStatus();
    }
    std::vector<std::function<Status()>> work;

   private:
    ApartDevice& device_;
  };
  Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) override {
    TEMPER_CHECK(queue_.empty()) << "work that was enqueued before would be recorded";
    auto recorded = std::make_unique<Recorded>(this);
    TEMPER_RETURN_IF_ERROR(enqueue());
    recorded->work = std::exchange(queue_, {});
    ++recorded_;
    return std::unique_ptr<Recording>(std::move(recorded));
  }

  Status Enqueue(std::function<Status()> work) {
    if (failed_.ok()) queue_.push_back(std::move(work));
    return failed_;
  }
  std::byte* MemoryAt(const std::byte* address) const {
    const auto m = std::find_if(mappings_.begin(), mappings_.end(), [&](const Mapping& mapping) {
      return address >= mapping.address && address <= mapping.address + mapping.size;
    });
    TEMPER_CHECK(m != mappings_.end()) << "an address that is not the device's";
    return m->memory + (address - m->address);
  }

  const std::string name_ = "a device apart from the host";
  KernelTable& inner_;
  std::vector<Mapping> mappings_;
  std::vector<std::function<Status()>> queue_;
  Status failed_;
  int synchronized_ = 0, recorded_ = 0, replayed_ = 0;
};

}  // namespace temper
