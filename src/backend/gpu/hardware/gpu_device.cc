#include "backend/gpu/gpu_device.h"
#include "graph/named_ops.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <mutex>

#include "backend/gpu/attention/cudnn_attention.h"
#include "backend/gpu/gpu_api.h"
#include "backend/gpu/gpu_kernels.h"
#include "backend/gpu/hardware/gpu_inventory.h"
#include "backend/gpu/hardware/gpu_stream.h"
#include "backend/gpu/hardware/memory_holders.h"
#include "backend/gpu/hardware/vendor_products.h"
#include "backend/gpu/pointwise/column_sums.h"
#include "backend/gpu/products/device_product_timer.h"
#include "base/log.h"

namespace temper {
namespace {

using namespace gpu;  // the names of gpu_api.h

#if defined(TEMPER_HIP)
constexpr bool kAmd = true;
#else
constexpr bool kAmd = false;
#endif

DriverReport::Card CardOf(const gpuDeviceProp& properties) {
  DriverReport::Card card{.name = properties.name, .major = properties.major, .minor = properties.minor};
#if defined(TEMPER_HIP)
  // "gfx90a:sramecc+:xnack-": the last two digits are hexadecimal.
  const std::string arch = std::string(properties.gcnArchName).substr(0, std::string(properties.gcnArchName).find(':'));
  if (arch.starts_with("gfx") && arch.size() > 5) {
    card.major = std::atoi(arch.substr(3, arch.size() - 5).c_str());
    card.minor = static_cast<int>(std::strtol(arch.substr(arch.size() - 2).c_str(), nullptr, 16));
  }
#endif
  card.memory = {static_cast<int64_t>(properties.totalGlobalMem)};
  return card;
}

DriverReport AskDriver() {
#if !defined(TEMPER_HIP)
  // The driver reads it when it starts. By default it has 8 queues to the card: several of our streams and NCCL's would
  // share one and wait for each other. 32 is the maximum. A value in the environment wins.
  (void)setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
#endif
  DriverReport report;
  report.amd = kAmd;
  (void)gpuDriverGetVersion(&report.driver);  // 0 where there is none
  (void)gpuRuntimeGetVersion(&report.runtime);
  int count = 0;
  const gpuError_t error = gpuGetDeviceCount(&count);
  if (error == gpuErrorInsufficientDriver) {
    report.state = report.driver == 0 ? DriverState::kMissing : DriverState::kTooOld;
  } else if (error != gpuSuccess && error != gpuErrorNoDevice) {
    report.state = DriverState::kFailed;
    report.failure = StatusOfCall(error, "counting devices").message();
    report.code = static_cast<int>(error);
  }
  if (error != gpuSuccess) return report;
  report.products = ProductsVersion();
  // Nothing that would make a context: of several ranks each asks for all cards.
  for (int i = 0; i < count; ++i) {
    gpuDeviceProp properties;
    if (gpuGetDeviceProperties(&properties, i) != gpuSuccess) continue;
    report.cards.push_back(CardOf(properties));
    if (!kAmd && PrefersCudnn(properties.major)) report.attention = CudnnVersion();
    std::array<unsigned char, 16> uuid = {};
    if (gpuDeviceUuid(i, &uuid) != gpuSuccess) continue;
    // Where a card has none, drivers give zeros or two letters.
    if (std::all_of(uuid.begin() + 2, uuid.end(), [](unsigned char byte) { return byte == 0; })) continue;
    for (const unsigned char byte : uuid) report.cards.back().uuid += fmt::format("{:02x}", byte);
  }
  return report;
}

// Which library multiplies, once per process; on HIP, where none does, the line has the reason and the remedy.
void SayProductsOnce() {
  static std::once_flag said;
  std::call_once(said, [] {
    if (const Result<std::string> version = ProductsVersion(); version.ok()) LogInfo("matrix products: " + *version);
  });
}

// Peers wait for what runs there, and it takes few of the card's multiprocessors.
bool IsBetweenRanks(StreamUse use) {
  return use == StreamUse::kCollectives || use == StreamUse::kSoonCollectives || use == StreamUse::kSends ||
         use == StreamUse::kReceives;
}

// The kernels that enqueue on one stream.
class KernelsOn final : public KernelTable {
 public:
  using Exchanges = std::function<Result<std::unique_ptr<DeviceExchange>>(AxisSet)>;
  // `exchanges` may change, and outlives it.
  KernelsOn(const std::string& name, GpuStream& stream, MatrixProducts* products, PackedAttention* packed,
            const Exchanges& exchanges)
      : name_(name), stream_(stream), products_(products), packed_(packed), exchanges_(exchanges) {}
  const std::string& name() const override { return name_; }
  Result<std::unique_ptr<Kernel>> Make(const KernelSpec& spec) override {
    if (spec.op == Op::kLinear) SayProductsOnce();
    return MakeGpuKernel(spec, {.stream = stream_.stream(),
                                .copies = &stream_,
                                .faults = stream_.faults(),
                                .products = products_,
                                .packed = packed_,
                                .exchange = exchanges_});
  }

 private:
  const std::string name_;
  GpuStream& stream_;
  MatrixProducts* const products_;
  PackedAttention* const packed_;
  const Exchanges& exchanges_;
};

class GpuDevice final : public Device {
 public:
  GpuDevice(int index, const GpuFacts& facts) : index_(index), facts_(facts) {}
  ~GpuDevice() override {
    for (auto& stream : streams_) stream.reset();  // after what is under way
    products_.reset();
    packed_.reset();
    for (const auto& [memory, size] : reserved_) (void)gpuFree(memory);
  }

  Status Open() {
    for (size_t use = 0; use < streams_.size(); ++use) {
      const bool computes = use == static_cast<size_t>(StreamUse::kCompute);
      TEMPER_ASSIGN_OR_RETURN(
          streams_[use],
          GpuStream::Open(
              index_, {.faults = computes, .pinned = computes, .urgent = IsBetweenRanks(static_cast<StreamUse>(use))}));
      if (computes) {
        TEMPER_ASSIGN_OR_RETURN(const std::span<std::byte> scratch, Allocate(kProductScratch));
        given_ = {};  // that is not the run's
        TEMPER_RETURN_IF_ERROR(CheckKernelsRun(streams_[use]->stream(), scratch));
        TEMPER_ASSIGN_OR_RETURN(products_, MakeProducts(streams_[use]->stream(), scratch));
        if (!kAmd && PrefersCudnn(facts_.major)) {
          auto packed = MakeCudnnAttention(streams_[use]->stream());
          if (packed.ok()) {
            packed_ = std::move(*packed);
          } else {
            LogWarning("attention is computed by our own kernels, which are slower on this GPU: " +
                       packed.status().message());
          }
        }
      }
      kernels_[use] = std::make_unique<KernelsOn>(facts_.name, *streams_[use], computes ? products_.get() : nullptr,
                                                  computes ? packed_.get() : nullptr, exchanges_);
    }
    return OkStatus();
  }

  const std::string& name() const override { return facts_.name; }
  const char* collectives_library() const override {
#if defined(TEMPER_HIP)
    return "librccl.so.1";
#else
    return "libnccl.so.2";
#endif
  }
  Stream& StreamFor(StreamUse use) override {
    return *streams_[static_cast<size_t>(use)];
  }
  KernelTable& KernelsFor(StreamUse use) override {
    return *kernels_[static_cast<size_t>(use)];
  }
  Result<ProductTiming> ChooseProducts(std::span<std::byte> memory, ProductChoices* choices) override {
    TEMPER_ASSIGN_OR_RETURN(const std::string library, ProductsVersion());
    ProductTiming done{.maker = library + " on " + facts_.name};
    ProductAlgorithms& algorithms = choices->by_maker[done.maker];
    DeviceProductTimer timer(*this, memory);
    TEMPER_RETURN_IF_ERROR(products_->Choose(timer, &algorithms, &done));
    TEMPER_RETURN_IF_ERROR(timer.Clear());
    if (!algorithms.empty()) return done;
    choices->by_maker.erase(done.maker);  // Temper's own kernels, of which there is nothing to choose
    return ProductTiming();
  }
  void Join(Communicator&, DeviceExchanges& exchanges, const Mesh& mesh) override {
    exchanges_ = [&exchanges, mesh](AxisSet axes) { return exchanges.MakeDeviceExchange(mesh, axes); };
  }
  Result<std::unique_ptr<Event>> MakeEvent() override {
    TEMPER_ASSIGN_OR_RETURN(auto event, GpuEvent::Make(index_));
    return std::unique_ptr<Event>(std::move(event));
  }
  Result<Memory> MeasureMemory() override {
    size_t free = 0, total = 0;
    TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuMemGetInfo(&free, &total), "asking for free memory"));
    return Memory{.total = {static_cast<int64_t>(total)},
                  .free = {static_cast<int64_t>(free)},
                  .beside = Bytes{static_cast<int64_t>(total - free)} - given_,
                  .pinned = {static_cast<int64_t>(opened_ * GpuStream::kPinned)}};
  }
  std::string MemoryHolders() override {
    char bus[32] = {};
    return gpuDeviceGetPCIBusId(bus, int{sizeof(bus)}, index_) == gpuSuccess ? DescribeHolders(HoldersOfMemory(bus))
                                                                             : "";
  }
  Status Pin(std::span<std::byte> memory) override {
    if (memory.empty()) return OkStatus();
    const gpuError_t error = gpuHostRegister(memory.data(), memory.size(), gpuHostRegisterPortable);
    if (error == gpuErrorMemoryAllocation) {
      (void)gpuGetLastError();  // it is not sticky
      return OutOfMemory(
          fmt::format("{} of the host's memory could not be pinned: raise the limit of locked memory "
                      "(ulimit -l), or lower memory.host",
                      ToString(Bytes{static_cast<int64_t>(memory.size())})));
    }
    return StatusOfCall(error, "pinning memory");
  }
  void Unpin(std::span<std::byte> memory) override {
    if (!memory.empty()) (void)gpuHostUnregister(memory.data());
  }
  Result<std::unique_ptr<Stream>> OpenStream() override {
    TEMPER_ASSIGN_OR_RETURN(auto stream, GpuStream::Open(index_, {.pinned = true}));
    ++opened_;
    return std::unique_ptr<Stream>(std::move(stream));
  }

  Result<std::span<std::byte>> Allocate(Bytes size) override {
    void* memory = nullptr;
    const auto bytes = static_cast<size_t>(std::max(size, Bytes{1}).v);
    const gpuError_t error = gpuMalloc(&memory, bytes);
    if (error == gpuErrorMemoryAllocation) {
      (void)gpuGetLastError();  // it is not sticky
      size_t free = 0, total = 0;
      (void)gpuMemGetInfo(&free, &total);
      return OutOfMemory(TooLittleFree(facts_.name, size, {static_cast<int64_t>(free)}, {static_cast<int64_t>(total)},
                                       MemoryHolders()));
    }
    TEMPER_RETURN_IF_ERROR(StatusOfCall(error, "memory"));
    reserved_.emplace_back(memory, size);
    given_ += size;
    TEMPER_RETURN_IF_ERROR(StatusOfCall(gpuMemsetAsync(memory, 0, bytes, compute().stream()), "clearing memory"));
    return std::span(static_cast<std::byte*>(memory), static_cast<size_t>(size.v));
  }
  void Release(std::span<std::byte> memory) override {
    const auto found = std::find_if(reserved_.begin(), reserved_.end(),
                                    [&](const auto& given) { return given.first == memory.data(); });
    TEMPER_CHECK(found != reserved_.end()) << "memory that this device did not give";
    (void)gpuFree(found->first);
    given_ = given_ - found->second;
    reserved_.erase(found);
  }

 private:
  GpuStream& compute() {
    return *streams_[static_cast<size_t>(StreamUse::kCompute)];
  }

  // Any kernel, before one in the middle of a run is the first that is missing: the sum of no rows.
  Status CheckKernelsRun(gpuStream_t stream, std::span<std::byte> scratch) const {
    const Status status = SumColumns<float>(nullptr, 0, 1, nullptr, reinterpret_cast<float*>(scratch.data()), stream);
    if (status.code() == StatusCode::kUnsupported) return Unsupported(NoKernelsFor(facts_, kAmd, status.message()));
    return status.WithContext(fmt::format("GPU {} ({}) ran no kernel", index_, facts_.name));
  }

  // What cuBLASLt wants on Hopper for all of its kernels; on others less would do.
  static constexpr Bytes kProductScratch = MiB(32);

  const int index_;
  const GpuFacts facts_;
  std::array<std::unique_ptr<GpuStream>, kNumStreamUses> streams_;
  std::array<std::unique_ptr<KernelTable>, kNumStreamUses> kernels_;
  std::unique_ptr<MatrixProducts> products_;
  std::unique_ptr<PackedAttention> packed_;  // nullptr: our own kernels attend
  KernelsOn::Exchanges exchanges_;
  std::vector<std::pair<void*, Bytes>> reserved_;
  size_t opened_ = 1;  // streams with pinned memory, that of kernels among them
  Bytes given_;        // of reserved_, since the device was opened
};

}  // namespace

// Read by the driver when it starts.
void LoadKernelsWhenOpened() {
#if defined(TEMPER_HIP)
  (void)setenv("HIP_ENABLE_DEFERRED_LOADING", "0", /*overwrite=*/0);
#else
  (void)setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0);
#endif
}

Result<GpuInventory> ListGpus() {
  return InventoryOf(AskDriver());
}

Result<std::unique_ptr<Device>> OpenGpu(int index) {
  const DriverReport report = AskDriver();
  TEMPER_ASSIGN_OR_RETURN(const GpuInventory inventory, InventoryOf(report));
  TEMPER_RETURN_IF_ERROR(CheckUsable(report, inventory, index));
  auto device = std::make_unique<GpuDevice>(index, inventory.gpus[static_cast<size_t>(index)]);
  TEMPER_RETURN_IF_ERROR(device->Open());
  return std::unique_ptr<Device>(std::move(device));
}

}  // namespace temper
