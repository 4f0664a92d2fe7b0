// How much of a disk's speed reaches memory through DiskTier? A spill file and a weights file of the same size are read
// and written in transfers like a run's, two under way at once (runtime/lanes.cc). Beside each, in the same round, is
// the most that the disk gives or takes: O_DIRECT in whole blocks, in order, several at once (in the way that was the
// fastest of some before the rounds), nothing copied. Nothing is in the page cache, before or after. A disk's speed
// varies, and others may use it: the ratio is the best of all rounds over the best; the median of the rounds' own
// ratios is beside it. Processor seconds are the process's, per 10^9 bytes of the file. Arguments: [FOLDER] [MB OF THE
// FILE] [MIB OF A TRANSFER] [ROUNDS].
#include <fcntl.h>
#include <fmt/core.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "disk/disk_tier.h"
#include "format/safetensors_writer.h"
#include "tensor/tier.h"

namespace temper::bench {
namespace {

constexpr int64_t kBlock = BlockFile::kBlock;
constexpr size_t kUnderWay = 2;  // transfers, as of a lane of the disk

void Die(const Status& s) {
  if (s.ok()) return;
  fmt::print(stderr, "{}\n", s.message());
  std::exit(1);
}
template <class T>
T Must(Result<T> r) {
  Die(r.status());
  return std::move(*r);
}

double ProcessorSeconds() {
  rusage u;
  getrusage(RUSAGE_SELF, &u);
  const auto seconds = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return seconds(u.ru_utime) + seconds(u.ru_stime);
}

struct Rate {
  double gigabytes = 0;  // 10^9 bytes per second, of the file
  double processor = 0;  // seconds per 10^9 bytes
};

Rate Timed(int64_t bytes, const std::function<void()>& work) {
  const double processor = ProcessorSeconds();
  const auto begin = std::chrono::steady_clock::now();
  work();
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double gigabytes = 1e-9 * static_cast<double>(bytes);
  return {gigabytes / seconds.count(), (ProcessorSeconds() - processor) / gigabytes};
}

// On huge pages, like the arena of a run, at a multiple of kBlock plus `shift`.
class Memory {
 public:
  Memory(int64_t size, int64_t shift) {
    constexpr int64_t kHugePage = int64_t{2} << 20;
    const auto whole = static_cast<size_t>(AlignUp(Bytes{size + shift}, kHugePage).v);
    bytes_.reset(static_cast<std::byte*>(std::aligned_alloc(kHugePage, whole)));
    (void)madvise(bytes_.get(), whole, MADV_HUGEPAGE);
    std::memset(bytes_.get(), 1, whole);
    at_ = {bytes_.get() + shift, static_cast<size_t>(size)};
  }
  std::span<std::byte> operator*() const { return at_; }

 private:
  struct Free {
    void operator()(std::byte* p) const { std::free(p); }
  };
  std::unique_ptr<std::byte, Free> bytes_;
  std::span<std::byte> at_;
};

// Threads in pread or pwrite of `piece` bytes each, in order.
struct Way {
  int width;
  int64_t piece;
};
constexpr Way kWays[] = {{2, 1 << 20}, {2, 4 << 20}, {4, 1 << 20}, {4, 4 << 20}, {8, 1 << 20}, {8, 4 << 20}};

// Each thread has a buffer of one piece, which stays in a cache; with `into`, it reads or writes that memory instead.
Rate Raw(BlockFile& file, int64_t bytes, bool writes, Way way, const std::vector<Memory>& into = {}) {
  const int64_t piece = way.piece;
  std::atomic<int64_t> next = 0;
  std::vector<std::thread> threads;
  std::vector<Memory> buffers;
  for (int t = 0; t < way.width; ++t) buffers.emplace_back(piece, 0);
  const Rate rate = Timed(bytes / piece * piece, [&] {
    for (const Memory& buffer : buffers) {
      threads.emplace_back([&, own = *buffer] {
        for (int64_t at; (at = next.fetch_add(piece)) + piece <= bytes;) {
          std::span<std::byte> span = own;
          if (!into.empty()) {
            const auto k = static_cast<size_t>(at / piece), each = (*into[0]).size() / own.size();
            span = (*into[k / each % into.size()]).subspan(k % each * own.size(), own.size());
          }
          Die(writes ? file.WriteAt(at, span) : file.ReadAt(at, span));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
  });
  return rate;
}

Way Fastest(BlockFile& file, int64_t bytes, bool writes) {
  Way fastest = kWays[0];
  double most = 0;
  for (const Way& way : kWays) {
    const Rate rate = Raw(file, bytes, writes, way);
    if (rate.gigabytes > most) fastest = way;
    most = std::max(most, rate.gigabytes);
  }
  return fastest;
}

// One line of the report, collected over rounds.
struct Line {
  std::string name;
  std::vector<Rate> rates, peaks;

  void Add(const Rate& rate, const Rate& peak) {
    rates.push_back(rate);
    peaks.push_back(peak);
  }
  void Print() const {
    const auto best = [](const std::vector<Rate>& v) {
      return *std::max_element(v.begin(), v.end(),
                               [](const Rate& a, const Rate& b) { return a.gigabytes < b.gigabytes; });
    };
    const Rate rate = best(rates), peak = best(peaks);
    std::vector<double> ratios;
    for (size_t i = 0; i < rates.size(); ++i) ratios.push_back(rates[i].gigabytes / peaks[i].gigabytes);
    std::sort(ratios.begin(), ratios.end());
    fmt::print(
        "{:<43} {:>5.2f} of {:>5.2f} GB/s: {:>4.2f} x (median {:.2f} x)   {:.3f} s/GB of a processor (bare {:.3f})\n",
        name, rate.gigabytes, peak.gigabytes, rate.gigabytes / peak.gigabytes, ratios[ratios.size() / 2],
        rate.processor, peak.processor);
  }
};

}  // namespace
}  // namespace temper::bench

int main(int argc, char** argv) {
  using namespace temper;
  using namespace temper::bench;
  const std::string folder = std::string(argc > 1 ? argv[1] : "/tmp") + "/temper_disk_stream";
  const int64_t bytes = static_cast<int64_t>((argc > 2 ? std::stod(argv[2]) : 2000.0) * 1e6) / kBlock * kBlock;
  const int64_t transfer = (argc > 3 ? std::stoll(argv[3]) : 32) << 20;
  const int rounds = argc > 4 ? std::stoi(argv[4]) : 5;
  Die(PosixEnv().CreateFolders(folder));

  const std::string path = JoinPath(folder, "model.safetensors");
  const TensorType type{DType::kBF16, {bytes / 2}};
  {
    auto writer = Must(SafetensorsWriter::Create(PosixEnv(), path, {{"w", type}}, {}, WriteMode::kDirect));
    const std::vector<std::byte> ones(size_t{4} << 20, std::byte{0x3f});
    for (int64_t at = 0; at < bytes; at += static_cast<int64_t>(ones.size())) {
      const auto n = std::min<int64_t>(static_cast<int64_t>(ones.size()), bytes - at);
      Die(writer.Append("w", std::span(ones).first(static_cast<size_t>(n))));
    }
    Die(writer.Finish());
  }
  // Drops what writing left in the cache.
  const int fd = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (fd < 0 || posix_fadvise(fd, 0, 0, POSIX_FADV_DONTNEED) != 0) Die(IoError("the page cache keeps " + path));
  close(fd);

  const ModelWeights weights = Must(ModelWeights::Open(PosixEnv(), folder));
  const ModelWeights::Entry entry = Must(weights.Require("w"));
  DiskTier::Spec spec{folder, Bytes{bytes}, {}};
  const Bytes as_stored = spec.spill, as_f32 = as_stored + Bytes{bytes};
  const auto whole = [&](DType as) { return Must(FindSlices(entry, PartView(View{nullptr, {as, type.shape}}))).at(0); };
  spec.mapped.push_back({as_stored, whole(type.dtype)});
  spec.mapped.push_back({as_f32, whole(DType::kF32)});
  const auto tier = Must(DiskTier::Create(PosixEnv(), spec));
  const auto raw_spill = Must(PosixEnv().CreateUnlinked(folder, Bytes{bytes}));
  const auto raw_model = Must(PosixEnv().OpenBlocks(path));

  // Of each thread.
  std::vector<Memory> aligned, shifted, wide;
  for (size_t t = 0; t < kUnderWay; ++t) {
    aligned.emplace_back(transfer, 0);
    shifted.emplace_back(transfer, 64);
    wide.emplace_back(2 * transfer, 64);
  }
  // The whole file: `work` does the transfer at a place, with memory of thread `t`.
  using Work = std::function<Status(Bytes at, size_t t)>;
  const auto each = [&](const Work& work) {
    std::atomic<int64_t> next = 0;
    std::vector<std::thread> threads;
    return Timed(bytes / transfer * transfer, [&] {
      for (size_t t = 0; t < kUnderWay; ++t) {
        threads.emplace_back([&, t] {
          for (int64_t at; (at = next.fetch_add(transfer)) + transfer <= bytes;) Die(work(Bytes{at}, t));
        });
      }
      for (std::thread& thread : threads) thread.join();
    });
  };
  const auto first_pass = [&](Bytes at, size_t t) { return tier->Write(at, *aligned[t]); };
  (void)each(first_pass);  // blocks that were never written are not read from the disk
  const Way writing = Fastest(*raw_spill, bytes, /*writes=*/true);
  const Way reading = Fastest(*raw_model, bytes, /*writes=*/false);

  Line lines[] = {
      {"read spill file, memory in blocks, awaited", {}, {}}, {"read so, not awaited; bare into that memory", {}, {}},
      {"read spill file, memory 64 bytes off", {}, {}},       {"read weights as stored", {}, {}},
      {"read weights bf16, wanted in f32", {}, {}},           {"write spill file, memory in blocks", {}, {}},
      {"write spill file, memory 64 bytes off", {}, {}}};
  for (int round = 0; round < rounds; ++round) {
    // `into`: what the disk gives is measured into that memory.
    const auto read = [&](Line& line, BlockFile& bare, const Work& work, const std::vector<Memory>& into = {}) {
      const Rate peak = Raw(bare, bytes, /*writes=*/false, reading, into);
      line.Add(each(work), peak);
    };
    const auto in_blocks = [&](Bytes at, size_t t) { return tier->Read(at, *aligned[t]); };
    const auto write = [&](Line& line, const std::vector<Memory>& from) {
      const Rate peak = Raw(*raw_spill, bytes, /*writes=*/true, writing);
      line.Add(each([&](Bytes at, size_t t) { return tier->Write(at, *from[t]); }), peak);
    };
    tier->NoteAwaited(true);
    read(lines[0], *raw_spill, in_blocks);
    tier->NoteAwaited(false);
    read(lines[1], *raw_spill, in_blocks, aligned);
    read(lines[2], *raw_spill, [&](Bytes at, size_t t) { return tier->Read(at, *shifted[t]); });
    read(lines[3], *raw_model, [&](Bytes at, size_t t) { return tier->Read(as_stored + at, *shifted[t]); });
    read(lines[4], *raw_model, [&](Bytes at, size_t t) { return tier->Read(as_f32 + at * 2, *wide[t]); });
    write(lines[5], aligned);
    write(lines[6], shifted);
  }
  fmt::print("{} in transfers of {}, best of {} rounds; buffers {}\n", ToString(Bytes{bytes}),
             ToString(Bytes{transfer}), rounds, ToString(DiskBuffers(/*spills=*/true)));
  for (const Line& line : lines) line.Print();
  Die(PosixEnv().RemoveTree(folder));
}
