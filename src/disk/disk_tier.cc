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

std::string Described(const FileVersion& v) {
  return fmt::format("{} bytes of {:%Y-%m-%d %H:%M:%S} UTC", v.size, fmt::gmtime(v.modified_ns / 1'000'000'000));
}

}  // namespace

struct DiskTier::Run {
  BlockFile* file;
  int64_t begin, end;  // bytes of the file
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
  if (spec.spill.v > 0) TEMPER_RETURN_IF_ERROR(tier->OpenSpill(env, spec));
  TEMPER_RETURN_IF_ERROR(tier->OpenMapped(env, std::move(spec.mapped)));
  if (spec.spill.v > 0) tier->writers_ = std::make_unique<IoTeam>(kWidth, kBuffer);
  if (spec.spill.v > 0 || !tier->mapped_.empty()) tier->readers_ = std::make_unique<IoTeam>(kWidth, kBuffer);
  return tier;
}

Status DiskTier::OpenSpill(Env& env, const Spec& spec) {
  TEMPER_RETURN_IF_ERROR(env.CreateFolders(spec.folder));
  Result<std::unique_ptr<BlockFile>> made = env.CreateUnlinked(spec.folder, spec.spill);
  if (!made.ok()) {
    const Status why = made.status();
    return Status(
        why.code(),
        fmt::format("the run spills {} to the disk: {}. Free some space, or name another folder (memory.disk)",
                    ToString(spec.spill), why.message()));
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
    if (region.slice.elements > 0) mapped_.push_back({region.at, std::move(region.slice), file});
  }
  std::sort(mapped_.begin(), mapped_.end(), [](const Mapped& a, const Mapped& b) { return a.at < b.at; });
  size_ = spill_;
  for (const Mapped& m : mapped_) {
    TEMPER_CHECK(m.at >= size_) << m.slice.name << " at byte " << m.at.v << " lies in what ends at " << size_.v;
    size_ = m.at + m.slice.bytes();
  }
  return OkStatus();
}

const DiskTier::Mapped& DiskTier::RegionOf(Bytes at, size_t size) const {
  const auto above = std::upper_bound(mapped_.begin(), mapped_.end(), at,
                                      [](Bytes address, const Mapped& m) { return address < m.at; });
  TEMPER_CHECK(above != mapped_.begin()) << "nothing lies at byte " << at.v << " of the disk tier";
  const Mapped& region = above[-1];
  TEMPER_CHECK(at.v + static_cast<int64_t>(size) <= (region.at + region.slice.bytes()).v)
      << size << " bytes at byte " << at.v << " of the disk tier go beyond " << region.slice.name;
  return region;
}

Status DiskTier::Read(Bytes at, std::span<std::byte> to) {
  if (to.empty()) return OkStatus();
  if (at >= spill_) return ReadMapped(RegionOf(at, to.size()), at, to);
  const int64_t end = at.v + static_cast<int64_t>(to.size());
  TEMPER_CHECK(at.v >= 0 && end <= spill_.v) << to.size() << " bytes at byte " << at.v << " of " << spill_.v;
  const Status read = ReadRun({spill_file_.get(), at.v, end, DType::kF32, DType::kF32, /*converts=*/false}, to);
  if (read.ok()) return read;
  return read.WithContext(fmt::format("reading bytes {} to {} of the spill file in {}", at.v, end, folder_));
}

Status DiskTier::ReadMapped(const Mapped& region, Bytes at, std::span<std::byte> to) {
  const StoredSlice& slice = region.slice;
  const File& file = files_[region.file];
  Run run{file.blocks.get(), 0, 0, slice.stored, slice.as, slice.converts()};
  const int64_t first = (at - region.at).v, size = static_cast<int64_t>(to.size());
  TEMPER_CHECK(first % run.size() == 0 && size % run.size() == 0 && IsAligned(to.data(), run.size()))
      << size << " bytes from byte " << first << " of " << slice.name << ", " << ToString(slice.as);
  run.begin = slice.begin + first / run.size() * run.stored_size();
  run.end = run.begin + size / run.size() * run.stored_size();
  const Status read = ReadRun(run, to);
  // Afterwards, so that a change while it was read shows, too; and where the read failed, that is likely why.
  const Status unchanged = CheckUnchanged(file);
  if (read.ok() && unchanged.ok()) return OkStatus();
  return (unchanged.ok() ? read : unchanged)
      .WithContext(
          fmt::format("reading tensor {}, bytes {} to {} of its file", Quoted(slice.name), run.begin, run.end));
}

Status DiskTier::ReadRun(const Run& run, std::span<std::byte> to) {
  return readers_->Run(run.chunks(), [&](int64_t k, std::span<std::byte> buffer) -> Status {
    const int64_t begin = run.border(k), end = run.border(k + 1);
    const int64_t elements = (end - begin) / run.stored_size();
    if (elements == 0) return OkStatus();  // less than one was left behind the last border
    const int64_t block_begin = BlockBegin(begin), block_end = BlockEnd(end);
    const auto out = to.subspan(static_cast<size_t>((begin - run.begin) / run.stored_size() * run.size()),
                                static_cast<size_t>(elements * run.size()));
    // Who fills a virtual disk's reads is a thread of its host that writes to memory: buffers, which are used again and
    // again, are in its cache, and give a third more than places spread over 16 MiB or more (bench/disk_stream.cc). The
    // copy from there costs a processor 0.13 s per GB, which kernels pay for but where they wait.
    const bool in_place = !run.converts && begin == block_begin && end == block_end &&
                          IsAligned(out.data(), run.file->memory_alignment());
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
  });
}

Status DiskTier::Write(Bytes at, std::span<const std::byte> from) {
  if (from.empty()) return OkStatus();
  BlockFile& file = *spill_file_;
  const Run run{&file, at.v, at.v + static_cast<int64_t>(from.size()), DType::kF32, DType::kF32, /*converts=*/false};
  TEMPER_CHECK(at.v >= 0 && run.end <= spill_.v) << from.size() << " bytes at byte " << at.v << " of " << spill_.v;
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
                  path, Described(file.version), Described(now)));
}

}  // namespace temper
