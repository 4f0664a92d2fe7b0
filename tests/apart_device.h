// A device whose memory the host cannot access: touching its addresses is a page fault, which
// ends the test. Its streams are threads; enqueued work is done as late as the contract
// allows, or in another allowed order (Timing), so a missing wait shows as wrong bytes. Its
// kernels come from a given table; they see the same memory under other addresses.
#pragma once

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "apart_stream.h"
#include "device/device.h"

namespace temper {

// When a stream does work that no caller waits for.
enum class Timing {
  kLate,         // only when a caller waits, or nothing else has happened for a while
  kKernelsLate,  // kernels like kLate; copies and collectives at once, if allowed
  kRandom,       // after a delay, drawn for each piece of work
};

class ApartDevice : public Device {
 public:
  // `kernels` must outlive the device.
  explicit ApartDevice(KernelTable& kernels, Timing timing = Timing::kLate) : inner_(kernels) {
    for (int use = 0; use < kNumStreamUses; ++use) {
      const bool late = timing == Timing::kLate || (timing == Timing::kKernelsLate && use == 0);
      streams_[static_cast<size_t>(use)] =
          std::make_unique<Queue>(this, late, timing == Timing::kRandom ? 1 + static_cast<unsigned>(use) : 0);
      tables_[static_cast<size_t>(use)] = std::make_unique<Table>(this, &queue(static_cast<StreamUse>(use)));
    }
  }
  ~ApartDevice() override {
    for (auto& stream : streams_) stream.reset();
    for (const Mapping& m : mappings_) {
      munmap(m.address, m.size);
      munmap(m.memory, m.size);
    }
  }

  const std::string& name() const override { return name_; }
  // The name of the tests' own library (tests/collectives/nccl).
  const char* collectives_library() const override { return "libnccl.so.2"; }
  Stream& StreamFor(StreamUse use) override { return queue(use); }
  KernelTable& KernelsFor(StreamUse use) override { return *tables_[static_cast<size_t>(use)]; }
  Result<std::span<std::byte>> Allocate(Bytes size) override {
    const auto bytes = (static_cast<size_t>(size.v) + 4095) / 4096 * 4096;
    const int file = memfd_create("apart", 0);
    TEMPER_CHECK(file >= 0 && ftruncate(file, static_cast<off_t>(bytes)) == 0) << bytes;
    const auto map = [&](int access) {
      void* const at = mmap(nullptr, bytes, access, MAP_SHARED, file, 0);
      TEMPER_CHECK(at != MAP_FAILED) << bytes;
      return static_cast<std::byte*>(at);
    };
    const Mapping made = {map(PROT_NONE), map(PROT_READ | PROT_WRITE), bytes};
    close(file);
    const std::lock_guard lock(memory_mutex_);
    mappings_.push_back(made);
    return std::span(made.address, static_cast<size_t>(size.v));
  }
  void Release(std::span<std::byte> memory) override {
    for (const auto& stream : streams_) TEMPER_CHECK(stream->idle()) << "memory is freed while enqueued work uses it";
    const std::lock_guard lock(memory_mutex_);
    const auto m = std::find_if(mappings_.begin(), mappings_.end(),
                                [&](const Mapping& mapping) { return mapping.address == memory.data(); });
    TEMPER_CHECK(m != mappings_.end()) << "not memory of the device";
    munmap(m->address, m->size);
    munmap(m->memory, m->size);
    mappings_.erase(m);
  }
  // As if it had unlimited memory.
  Result<Memory> MeasureMemory() override { return Memory{.total = GiB(1 << 20), .free = GiB(1 << 20)}; }
  Status Pin(std::span<std::byte> memory) override {
    const std::lock_guard lock(memory_mutex_);
    pinned_.push_back(memory);
    return OkStatus();
  }
  void Unpin(std::span<std::byte> memory) override {
    const std::lock_guard lock(memory_mutex_);
    const auto it = std::find_if(pinned_.begin(), pinned_.end(), [&](auto p) { return p.data() == memory.data(); });
    TEMPER_CHECK(it != pinned_.end()) << "not pinned memory";
    pinned_.erase(it);
  }
  Result<std::unique_ptr<Stream>> OpenStream() override {
    return std::unique_ptr<Stream>(std::make_unique<Queue>(this, /*late=*/false, 0));
  }
  // Its kernels exchange numbers on the host while they run.
  void Join(Communicator&, DeviceExchanges&, const Mesh&) override {}
  Result<std::unique_ptr<Event>> MakeEvent() override { return std::unique_ptr<Event>(std::make_unique<Place>(this)); }

  // For tests of the tests: that stream ignores waits.
  void ForgetWaitsOf(StreamUse use) { queue(use).forgets = true; }

  // For the stream of kernels: recordings made, replays, work enqueued
  // and not done, and how often a caller waited for all of it.
  int recorded() const { return recorded_; }
  int replayed() const { return replayed_; }
  // Events that the host has waited for.
  int awaited() const { return awaited_; }
  size_t waiting() { return queue(StreamUse::kCompute).waiting(); }
  int synchronized() { return queue(StreamUse::kCompute).synchronized; }

 private:
  using Clock = std::chrono::steady_clock;
  struct Mapping {
    std::byte *address, *memory;  // as the host sees it, as kernels see it
    size_t size;
  };
  class Queue;

  class Place final : public Event {
   public:
    explicit Place(ApartDevice* device) : device_(*device) {}
    Status Synchronize() override {
      ++device_.awaited_;
      if (queue != nullptr) queue->WaitFor(position);
      return OkStatus();
    }
    Result<Seconds> Since(const Event& earlier) const override {
      return Seconds{std::chrono::duration<double>(time - static_cast<const Place&>(earlier).time).count()};
    }
    Queue* queue = nullptr;
    size_t position = 0;  // length of the queue before the mark
    Clock::time_point time;

   private:
    ApartDevice& device_;
  };

  class Queue final : public Stream {
   public:
    Queue(ApartDevice* device, bool late, unsigned seed)
        : device_(*device), late_(late), random_(seed), delays_(seed > 0), handle_{this, EnqueueWork, FindMemory} {}
    ~Queue() override {
      {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
      }
      changed_.notify_all();
      if (worker_.joinable()) worker_.join();
    }

    Status CopyToDevice(std::span<const std::byte> host, std::byte* device) override {
      return Enqueue([host, to = device_.MemoryAt(device)] {
        if (!host.empty()) std::memcpy(to, host.data(), host.size());
        return OkStatus();
      });
    }
    Status CopyToHost(const std::byte* device, std::span<std::byte> host) override {
      return Enqueue([host, from = device_.MemoryAt(device)] {
        if (!host.empty()) std::memcpy(host.data(), from, host.size());
        return OkStatus();
      });
    }
    Status CopyRows(const Rows& from, const Rows& to, Bytes width, int64_t rows) override {
      if (rows == 0 || width == Bytes{0}) return OkStatus();
      return Enqueue(
          [=, a = Rows{device_.MemoryOrPinned(from.data), from.pitch},
           b = Rows{device_.MemoryOrPinned(to.data), to.pitch}] { return HostStream().CopyRows(a, b, width, rows); });
    }
    Status Mark(Event& event) override {
      auto& place = static_cast<Place&>(event);
      TEMPER_RETURN_IF_ERROR(Enqueue([&place] {
        place.time = Clock::now();
        return OkStatus();
      }));
      const std::lock_guard lock(mutex_);
      place.queue = this;
      place.position = enqueued_;
      return OkStatus();
    }
    Status Await(const Event& event) override {
      const auto& place = static_cast<const Place&>(event);
      if (place.queue == nullptr || forgets) return OkStatus();
      return Enqueue([queue = place.queue, position = place.position] {
        queue->WaitFor(position);
        return OkStatus();
      });
    }
    Status Note(const std::string& name) override {
      return Enqueue([this, &name] {
        noted_ = &name;
        return OkStatus();
      });
    }
    void* handle() override { return &handle_; }
    Status Synchronize() override {
      ++synchronized;
      std::unique_lock lock(mutex_);
      const size_t all = enqueued_;
      lock.unlock();
      WaitFor(all);
      lock.lock();
      noted_ = nullptr;
      return failed_;
    }
    Result<std::unique_ptr<Recording>> Record(const std::function<Status()>& enqueue) override {
      TEMPER_CHECK(idle()) << "earlier work would be recorded";
      auto recorded = std::make_unique<Recorded>(this);
      recording_ = &recorded->work;
      const Status status = enqueue();
      recording_ = nullptr;
      TEMPER_RETURN_IF_ERROR(status);
      ++device_.recorded_;
      return std::unique_ptr<Recording>(std::move(recorded));
    }

    Status Enqueue(std::function<Status()> work) {
      if (recording_ != nullptr) {
        recording_->push_back(std::move(work));
        return OkStatus();
      }
      const std::lock_guard lock(mutex_);
      if (!failed_.ok()) return failed_;
      if (!worker_.joinable()) worker_ = std::thread([this] { Work(); });
      queue_.push_back(std::move(work));
      ++enqueued_;
      last_ = Clock::now();
      changed_.notify_all();
      return OkStatus();
    }
    void WaitFor(size_t position) {
      std::unique_lock lock(mutex_);
      wanted_ = std::max(wanted_, position);
      changed_.notify_all();
      changed_.wait(lock, [&] { return done_ >= position; });
    }
    size_t waiting() {
      const std::lock_guard lock(mutex_);
      return enqueued_ - done_;
    }
    bool idle() { return waiting() == 0; }

    bool forgets = false;
    int synchronized = 0;

   private:
    class Recorded final : public Recording {
     public:
      explicit Recorded(Queue* queue) : queue_(*queue) {}
      Status Replay() override {
        ++queue_.device_.replayed_;
        for (const auto& each : work) TEMPER_RETURN_IF_ERROR(queue_.Enqueue(each));
        return OkStatus();
      }
      std::vector<std::function<Status()>> work;

     private:
      Queue& queue_;
    };

    void Work() {
      std::unique_lock lock(mutex_);
      for (;;) {
        // A GPU continues by itself: other ranks may wait for work that this one has enqueued without waiting for it.
        constexpr auto kWhile = std::chrono::milliseconds(20);
        const auto due = [&] {
          return done_ < enqueued_ && (!late_ || done_ < wanted_ || Clock::now() - last_ >= kWhile);
        };
        while (!due() && !stopping_) {
          if (late_ && done_ < enqueued_) {
            changed_.wait_for(lock, kWhile);
          } else {
            changed_.wait(lock);
          }
        }
        if (done_ == enqueued_) return;
        std::function<Status()> work = std::move(queue_.front());
        queue_.pop_front();
        Status status = failed_;
        const auto delay = std::chrono::microseconds(delays_ && random_() % 4 == 0 ? random_() % 300 : 0);
        lock.unlock();
        if (delay.count() > 0) std::this_thread::sleep_for(delay);
        if (status.ok()) status = work();
        work = nullptr;
        lock.lock();
        const std::string* const noted = noted_;
        if (failed_.ok() && !status.ok()) failed_ = noted == nullptr ? status : status.WithContext("of " + *noted);
        ++done_;
        changed_.notify_all();
      }
    }

    static void EnqueueWork(void* stream, const char* (*work)(void*), void (*drop)(void*), void* argument) {
      const std::shared_ptr<void> owned(argument, drop);
      (void)static_cast<Queue*>(stream)->Enqueue([work, owned] {
        const char* const error = work(owned.get());
        return error == nullptr ? OkStatus() : InvalidArgument(error);
      });
    }
    static void* FindMemory(void* stream, const void* address) {
      return static_cast<Queue*>(stream)->device_.Find(static_cast<const std::byte*>(address), /*pinned=*/true);
    }

    ApartDevice& device_;
    const bool late_;
    std::minstd_rand random_;
    const bool delays_;
    ApartStreamHandle handle_;
    std::vector<std::function<Status()>>* recording_ = nullptr;  // of the thread that enqueues
    std::mutex mutex_;                                           // guards the rest
    std::condition_variable changed_;
    std::deque<std::function<Status()>> queue_;
    size_t enqueued_ = 0, wanted_ = 0, done_ = 0;  // so far
    Clock::time_point last_;                       // when something was enqueued
    std::atomic<const std::string*> noted_ = nullptr;
    Status failed_;
    bool stopping_ = false;
    std::thread worker_;
  };

  class Deferred final : public Kernel {
   public:
    Deferred(ApartDevice* device, Queue* queue, std::unique_ptr<Kernel> kernel, size_t inputs, size_t outputs)
        : device_(*device), queue_(*queue), kernel_(std::move(kernel)), inputs_(inputs), outputs_(outputs) {}
    Status Run(const KernelArgs& args) override {
      const auto memory = [this](std::byte* const* addresses, size_t n) {
        std::vector<std::byte*> found;
        for (size_t i = 0; i < n; ++i) found.push_back(device_.MemoryAt(addresses[i]));
        return found;
      };
      std::byte* const workspace = args.workspace == nullptr ? nullptr : device_.MemoryAt(args.workspace);
      std::vector<const std::byte*> loaded(inputs_, nullptr);
      if (args.loaded != nullptr) loaded.assign(args.loaded, args.loaded + inputs_);
      return queue_.Enqueue([this, in = memory(args.inputs, inputs_), out = memory(args.outputs, outputs_), workspace,
                             hash = args.rng_name_hash, loaded = std::move(loaded)] {
        return kernel_->Run({in.data(), out.data(), workspace, hash, loaded.data()});
      });
    }
    bool replayable() const override { return kernel_->replayable(); }

   private:
    ApartDevice& device_;
    Queue& queue_;
    const std::unique_ptr<Kernel> kernel_;
    const size_t inputs_, outputs_;
  };

  class Table final : public KernelTable {
   public:
    Table(ApartDevice* device, Queue* queue) : device_(*device), queue_(*queue) {}
    const std::string& name() const override { return device_.name(); }
    Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
      TEMPER_ASSIGN_OR_RETURN(auto kernel, device_.inner_.Make(spec));
      return std::unique_ptr<Kernel>(
          std::make_unique<Deferred>(&device_, &queue_, std::move(kernel), spec.inputs.size(), spec.outputs.size()));
    }

   private:
    ApartDevice& device_;
    Queue& queue_;
  };

  Queue& queue(StreamUse use) { return *streams_[static_cast<size_t>(use)]; }
  std::byte* Find(const std::byte* address, bool pinned) {
    const std::lock_guard lock(memory_mutex_);
    for (const size_t beyond : {0u, 1u}) {  // an empty range may be at an end
      for (const Mapping& m : mappings_) {
        if (address >= m.address && address < m.address + m.size + beyond) return m.memory + (address - m.address);
      }
      for (const auto& p : pinned_) {
        if (pinned && address >= p.data() && address < p.data() + p.size() + beyond) {
          return const_cast<std::byte*>(address);
        }
      }
    }
    return nullptr;
  }
  std::byte* MemoryAt(const std::byte* address) {
    std::byte* const found = Find(address, /*pinned=*/false);
    TEMPER_CHECK(found != nullptr) << "not an address of the device";
    return found;
  }
  std::byte* MemoryOrPinned(const std::byte* address) {
    std::byte* const found = Find(address, /*pinned=*/true);
    TEMPER_CHECK(found != nullptr) << "an address neither of the device nor pinned";
    return found;
  }

  const std::string name_ = "a device apart from the host";
  KernelTable& inner_;
  std::mutex memory_mutex_;
  std::vector<Mapping> mappings_;
  std::vector<std::span<std::byte>> pinned_;
  std::atomic<int> recorded_ = 0, replayed_ = 0, awaited_ = 0;
  std::array<std::unique_ptr<Queue>, kNumStreamUses> streams_;
  std::array<std::unique_ptr<Table>, kNumStreamUses> tables_;
};

}  // namespace temper
