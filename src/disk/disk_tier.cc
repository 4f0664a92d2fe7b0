#include "disk/disk_tier.h"

#include <fmt/chrono.h>
#include <fmt/core.h>

#include <algorithm>
#include <cstring>

#include "base/block_file.h"
#include "disk/io_team.h"
#include "format/conversion.h"
#include "format/quoted.h"
#include "tensor/tier.h"

namespace temper {
namespace {

// Chunks in flight, of reads and of writes each, and their bytes. A virtual disk and an NVMe reach what they give to
// O_DIRECT with some MiB in flight (bench/disk_stream.cc measures it); more chunks than cores, because a thread that
// has read waits for a core that training keeps busy before it can ask again. A chunk is 240 pages, so that it is one
// request to a virtual disk even where they are scattered: a queue of virtio takes 254 pieces.
constexpr int kWidth = kDiskChunks;
constexpr int64_t kBlock = BlockFile::kBlock;
constexpr int64_t kChunk = 240 * kBlock;
// A chunk whose ends lie within blocks (border() moves its begin up by less than an element), rounded up so that all
// are whole huge pages.
constexpr Bytes kBuffer = kDiskBuffer;
static_assert(kChunk + kBlock <= kBuffer.v);

int64_t BlockBegin(int64_t offset) {
  return offset / kBlock * kBlock;
}
int64_t BlockEnd(int64_t offset) {
  return AlignUp({offset}, kBlock).v;
}

bool IsAligned(const void* p, int64_t alignment) {
  return reinterpret_cast<uintptr_t>(p) % static_cast<uintptr_t>(alignment) == 0;
}

std::string VersionText(const FileVersion& v) {
  return fmt::format("{} bytes of {:%Y-%m-%d %H:%M:%S} UTC", v.size, fmt::gmtime(v.modified_ns / 1'000'000'000));
}

}  // namespace

struct DiskTier::Run {
  BlockFile* file;
  const Region* region;  // null: of the spill file, below spill_
  int64_t begin, end;    // bytes of the file
  DType stored, as;
  bool converts;

  // Bytes of a unit that no chunk may cut, in the file and in memory.
  int64_t stored_size() const { return converts ? SizeOf(stored) : 1; }
  int64_t size() const { return converts ? SizeOf(as) : 1; }
  int64_t chunks() const { return (end - 1) / kChunk - begin / kChunk + 1; }
  // Where chunk `k` begins and the one before ends: at a multiple of kChunk of the file, or the next whole element.
  int64_t border(int64_t k) const {
    const int64_t nominal = (begin / kChunk + k) * kChunk;
    if (nominal <= begin) return begin;
    return std::min(end, begin + AlignUp({nominal - begin}, stored_size()).v);
  }
};

DiskTier::~DiskTier() = default;

Result<std::unique_ptr<DiskTier>> DiskTier::Create(Env& env, Spec spec) {
  std::unique_ptr<DiskTier> tier(new DiskTier());
  tier->spill_ = spec.spill;
  tier->folder_ = spec.folder;
  TEMPER_RETURN_IF_ERROR(tier->OpenMapped(env, std::move(spec.mapped)));
  Bytes file = AlignUp(spec.spill, spec.copied.empty() ? 1 : kAlignment);
  for (const CopiedRegion& copy : spec.copied) {
    if (copy.size.v == 0) continue;
    tier->regions_.push_back({.at = copy.at, .size = copy.size, .spilled_at = file.v});
    file = AlignUp(file + copy.size, kAlignment);
  }
  std::sort(tier->regions_.begin(), tier->regions_.end(), [](const Region& a, const Region& b) { return a.at < b.at; });
  tier->size_ = tier->spill_;
  for (const Region& r : tier->regions_) {
    TEMPER_CHECK(r.at >= tier->size_) << r.slice.name << " at byte " << r.at.v << " lies in what ends at "
                                      << tier->size_.v;
    tier->size_ = r.at + r.size;
  }
  if (file.v > 0) TEMPER_RETURN_IF_ERROR(tier->OpenSpill(env, spec.folder, file));
  if (file.v > 0) tier->writers_ = std::make_unique<IoTeam>(kWidth, kBuffer);
  if (tier->size_.v > 0) tier->readers_ = std::make_unique<IoTeam>(kWidth, kBuffer);
  return tier;
}

Status DiskTier::OpenSpill(Env& env, const std::string& folder, Bytes size) {
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(folder));
  Result<std::unique_ptr<BlockFile>> made = env.CreateUnlinked(folder, size);
  if (!made.ok()) {
    const Status why = made.status();
    return Status(
        why.code(),
        fmt::format("the run spills {} to the disk: {}. Free some space, or name another folder (memory.disk)",
                    ToString(size), why.message()));
  }
  spill_file_ = std::move(*made);
  return OkStatus();
}

Status DiskTier::OpenMapped(Env& env, std::vector<MappedRegion> mapped) {
  for (MappedRegion& region : mapped) {
    const auto known = std::find_if(files_.begin(), files_.end(),
                                    [&](const File& f) { return f.blocks->path() == region.slice.path; });
    const auto file = static_cast<size_t>(known - files_.begin());
    if (known == files_.end()) {
      TEMPER_ASSIGN_OR_RETURN(auto blocks, env.OpenBlocks(region.slice.path));
      files_.push_back({std::move(blocks), region.slice.version});
      TEMPER_RETURN_IF_ERROR(CheckUnchanged(files_.back()));
    }
    TEMPER_CHECK(files_[file].version == region.slice.version) << "two versions of " << region.slice.path;
    const Bytes size = region.slice.bytes();
    if (size.v > 0) regions_.push_back({.at = region.at, .size = size, .slice = std::move(region.slice), .file = file});
  }
  return OkStatus();
}

size_t DiskTier::RegionOf(Bytes at) const {
  const auto above = std::upper_bound(regions_.begin(), regions_.end(), at,
                                      [](Bytes address, const Region& r) { return address < r.at; });
  TEMPER_CHECK(above != regions_.begin()) << "nothing lies at byte " << at.v << " of the disk tier";
  return static_cast<size_t>(above - regions_.begin()) - 1;
}

template <class Take>
bool DiskTier::ForRuns(const StoreRead& read, const Take& take) const {
  std::span<std::byte> to = read.to;
  Bytes at = read.at;
  if (to.empty()) return true;
  if (at < spill_) {
    const int64_t end = at.v + std::ssize(to);
    TEMPER_CHECK(at.v >= 0 && end <= spill_.v) << to.size() << " bytes at byte " << at.v << " of " << spill_.v;
    return take(Run{spill_file_.get(), nullptr, at.v, end, DType::kF32, DType::kF32, /*converts=*/false}, to);
  }
  for (size_t i = RegionOf(at); !to.empty(); ++i) {
    TEMPER_CHECK(i < regions_.size() && regions_[i].at <= at && at < regions_[i].at + regions_[i].size)
        << to.size() << " bytes at byte " << at.v << " of the disk tier go beyond a region";
    const Region& region = regions_[i];
    const int64_t first = (at - region.at).v, size = std::min(std::ssize(to), region.size.v - first);
    const auto own = to.first(static_cast<size_t>(size));
    const StoredSlice& slice = region.slice;
    Run run{spill_file_.get(), &region, 0, 0, DType::kF32, DType::kF32, false};
    if (region.spilled_at >= 0) {
      run.begin = region.spilled_at + first;
      run.end = run.begin + size;
    } else {
      run.file = files_[region.file].blocks.get();
      run.stored = slice.stored;
      run.as = slice.as;
      run.converts = slice.converts();
      TEMPER_CHECK(first % run.size() == 0 && size % run.size() == 0 && IsAligned(own.data(), run.size()))
          << size << " bytes from byte " << first << " of " << slice.name << ", " << ToString(slice.as);
      run.begin = slice.begin + first / run.size() * run.stored_size();
      run.end = run.begin + size / run.size() * run.stored_size();
    }
    if (!take(run, own)) return false;
    to = to.subspan(own.size());
    at += Bytes{size};
  }
  return true;
}

std::string DiskTier::Described(const Run& run) const {
  if (run.region == nullptr || run.region->spilled_at >= 0) {
    return fmt::format("reading bytes {} to {} of the spill file in {}", run.begin, run.end, folder_);
  }
  return fmt::format("reading tensor {}, bytes {} to {} of its file", Quoted(run.region->slice.name), run.begin,
                     run.end);
}

Status DiskTier::Read(Bytes at, std::span<std::byte> to) {
  const StoreRead read{at, to};
  return ReadAll({&read, 1});
}

Status DiskTier::ReadAll(std::span<const StoreRead> reads) {
  int64_t chunks = 0;
  const auto for_runs = [&](const auto& take) {
    for (const StoreRead& read : reads) {
      if (!ForRuns(read, take)) return;
    }
  };
  for_runs([&](const Run& run, std::span<std::byte>) {
    chunks += run.chunks();
    return true;
  });
  if (chunks == 0) return OkStatus();
  // A chunk finds its run by going through them: what that takes is nothing beside a request to the disk.
  const Status read = readers_->Run(chunks, [&](int64_t chunk, std::span<std::byte> buffer) -> Status {
    Status status;
    for_runs([&](const Run& run, std::span<std::byte> to) {
      if (chunk >= run.chunks()) {
        chunk -= run.chunks();
        return true;
      }
      status = ReadChunk(run, chunk, to, buffer);
      if (!status.ok()) status = status.WithContext(Described(run));
      return false;
    });
    return status;
  });
  // Afterwards, so that a change while it was read shows, too; and where the read failed, that is likely why.
  Status unchanged;
  size_t checked = files_.size();
  for_runs([&](const Run& run, std::span<std::byte>) {
    if (run.region == nullptr || run.region->spilled_at >= 0 || run.region->file == checked) return true;
    checked = run.region->file;
    unchanged = CheckUnchanged(files_[checked]);
    if (!unchanged.ok()) unchanged = unchanged.WithContext(Described(run));
    return unchanged.ok();
  });
  return unchanged.ok() ? read : unchanged;
}

Status DiskTier::ReadChunk(const Run& run, int64_t k, std::span<std::byte> to, std::span<std::byte> buffer) const {
  const int64_t begin = run.border(k), end = run.border(k + 1);
  const int64_t elements = (end - begin) / run.stored_size();
  if (elements == 0) return OkStatus();  // less than one was left behind the last border
  const int64_t block_begin = BlockBegin(begin), block_end = BlockEnd(end);
  const auto out = to.subspan(static_cast<size_t>((begin - run.begin) / run.stored_size() * run.size()),
                              static_cast<size_t>(elements * run.size()));
  // Who fills a virtual disk's reads is a thread of its host that writes to memory: buffers, which are used again and
  // again, are in its cache, and give a third more than places spread over 16 MiB or more (bench/disk_stream.cc). The
  // copy from there costs a processor 0.13 s per GB, which kernels pay for but where they wait.
  const bool in_place =
      !run.converts && begin == block_begin && end == block_end && IsAligned(out.data(), run.file->memory_alignment());
  if (in_place && awaited_.load(std::memory_order_relaxed) == 0) return run.file->ReadAt(begin, out);
  TEMPER_RETURN_IF_ERROR(run.file->ReadAt(block_begin, buffer.first(static_cast<size_t>(block_end - block_begin))));
  std::byte* stored = buffer.data() + (begin - block_begin);
  if (!run.converts) {
    std::memcpy(out.data(), stored, out.size());
    return OkStatus();
  }
  if (!IsAligned(stored, run.stored_size())) {  // a header whose length is odd
    std::memmove(buffer.data(), stored, static_cast<size_t>(end - begin));
    stored = buffer.data();
  }
  Convert(run.stored, stored, run.as, out.data(), elements);
  return OkStatus();
}

Status DiskTier::Write(Bytes at, std::span<const std::byte> from) {
  if (from.empty()) return OkStatus();
  BlockFile& file = *spill_file_;
  const auto size = static_cast<int64_t>(from.size());
  Bytes limit = spill_;
  if (at >= spill_) {
    const Region& copy = regions_[RegionOf(at)];
    TEMPER_CHECK(copy.spilled_at >= 0) << copy.slice.name << " is written";
    limit = Bytes{copy.spilled_at} + copy.size;
    at = Bytes{copy.spilled_at} + (at - copy.at);
  }
  const Run run{&file, nullptr, at.v, at.v + size, DType::kF32, DType::kF32, /*converts=*/false};
  TEMPER_CHECK(at.v >= 0 && run.end <= limit.v) << size << " bytes at byte " << at.v << " of " << limit.v;
  const Status written = writers_->Run(run.chunks(), [&](int64_t k, std::span<std::byte> buffer) -> Status {
    const int64_t begin = run.border(k), end = run.border(k + 1);
    const auto data = [&](int64_t first, int64_t last) {
      return from.subspan(static_cast<size_t>(first - at.v), static_cast<size_t>(last - first));
    };
    // Only the chunks at the run's ends have less than whole blocks.
    const int64_t whole_begin = std::min(BlockEnd(begin), end), whole_end = std::max(BlockBegin(end), whole_begin);
    if (begin < whole_begin) TEMPER_RETURN_IF_ERROR(WriteWithinBlock(begin, data(begin, whole_begin), buffer));
    if (whole_end < end) TEMPER_RETURN_IF_ERROR(WriteWithinBlock(whole_end, data(whole_end, end), buffer));
    std::span<const std::byte> whole = data(whole_begin, whole_end);
    if (whole.empty()) return OkStatus();
    if (!IsAligned(whole.data(), file.memory_alignment())) {
      std::memcpy(buffer.data(), whole.data(), whole.size());
      whole = buffer.first(whole.size());
    }
    return file.WriteAt(whole_begin, whole);
  });
  if (written.ok()) return written;
  return written.WithContext(fmt::format("writing bytes {} to {} of the spill file in {}", at.v, run.end, folder_));
}

// What else is in the block stays.
Status DiskTier::WriteWithinBlock(int64_t begin, std::span<const std::byte> data, std::span<std::byte> buffer) {
  const auto block = buffer.first(kBlock);
  const int64_t at = BlockBegin(begin);
  const std::lock_guard lock(ends_);
  TEMPER_RETURN_IF_ERROR(spill_file_->ReadAt(at, block));
  std::memcpy(block.data() + (begin - at), data.data(), data.size());
  return spill_file_->WriteAt(at, block);
}

Status DiskTier::CheckUnchanged(const File& file) const {
  TEMPER_ASSIGN_OR_RETURN(const FileVersion now, file.blocks->Version());
  if (now == file.version) return OkStatus();
  const std::string& path = file.blocks->path();
  if (now.inode != file.version.inode || now.device != file.version.device) {
    return Corrupt(
        fmt::format("{} was replaced by another file since the run read its header: leave the files of a "
                    "model alone while it is trained, and start the run again",
                    path));
  }
  return Corrupt(
      fmt::format("{} has changed during the run, which reads its weights from there: it was {} and is {}. Restore "
                  "it, and resume from the last checkpoint",
                  path, VersionText(file.version), VersionText(now)));
}

}  // namespace temper
