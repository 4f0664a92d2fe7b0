// DiskTier: the slowest memory tier. One flat space of byte addresses, laid out by the plan:
//
//   [0, spill)   the spill file: what the run moves out of memory and back (optimizer states, activations, gradients)
//   above        regions that are mapped onto tensors of safetensors files, read only: frozen weights, which are read
//                from the model's own folder, converted on the way where it holds another dtype. A weight may lie in
//                several, one behind the other: an expert's matrix each. Beside them regions of copies in the spill
//                file, of frozen weights that no file has as the run wants them
//
// Nothing is mapped into memory: a file that vanishes, shrinks or changes during a run is an error that names it, not a
// signal, and not a step on wrong weights. Reads and writes go around the page cache.
//
// The spill file has no name: however the process dies, its space is freed, and several runs and ranks may use one
// folder. All of its space is reserved when it is made: a disk that is too small is reported before training.
//
// Memory: planned (tensor/tier.h, DiskBuffers), allocated and touched by Create; Read and Write allocate nothing when
// they succeed. Thread rule: any threads at once, on different bytes if one of them writes. Reads share the places in
// flight, and so do writes: first come, first served, and the next transfer's chunks follow without a gap (io_team.h).
// To get the disk's full rate, keep two transfers of a kind under way.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "base/env.h"
#include "device/store.h"
#include "disk/stored_slice.h"

namespace temper {

class IoTeam;

class DiskTier final : public Store {
 public:
  // Regions of the spill file at multiples of this are written without first reading the blocks at their ends.
  static constexpr int64_t kAlignment = BlockFile::kBlock;

  struct MappedRegion {
    Bytes at;  // address; its size is slice.bytes()
    StoredSlice slice;
  };
  struct CopiedRegion {
    Bytes at, size;
  };
  struct Spec {
    std::string folder;  // of the spill file; created if missing
    Bytes spill;         // 0, and nothing is copied: no spill file
    std::vector<MappedRegion> mapped;
    std::vector<CopiedRegion> copied = {};
  };

  // REQUIRES: regions lie above `spec.spill` and do not overlap. Errors: too little space (with the numbers), a
  // folder or file that cannot be opened, a weights file that has
  // changed since its header was read. `env` must outlive the tier.
  static Result<std::unique_ptr<DiskTier>> Create(Env& env, Spec spec);
  ~DiskTier() override;
  DiskTier(const DiskTier&) = delete;
  DiskTier& operator=(const DiskTier&) = delete;

  // Copies the to.size() bytes from address `at` on. If memory and file are aligned alike and it is not awaited, that
  // takes no processor time: no byte is copied. REQUIRES: they lie below `spill`, or in regions without a gap
  // between them; in one that converts they are whole elements, and `to` is aligned to these. After an error `to` is
  // undefined.
  Status Read(Bytes at, std::span<std::byte> to) override;
  Status ReadAll(std::span<const StoreRead> reads) override;
  // REQUIRES: they lie below `spill`, or in a region that is copied. After an error these bytes of it are undefined.
  Status Write(Bytes at, std::span<const std::byte> from) override;

  void NoteAwaited(bool awaited) override { awaited_ += awaited ? 1 : -1; }

  Bytes size() const override { return size_; }  // end of the last region
  Bytes spill() const { return spill_; }

 private:
  struct File {
    std::unique_ptr<BlockFile> blocks;
    FileVersion version;
  };
  struct Region {
    Bytes at, size;
    StoredSlice slice = {};
    size_t file = 0;          // in files_
    int64_t spilled_at = -1;  // of a copy: its place in the spill file
  };
  // Bytes of a file that are converted in memory.
  struct Run;

  DiskTier() = default;
  Status OpenSpill(Env& env, const std::string& folder, Bytes size);
  Status OpenMapped(Env& env, std::vector<MappedRegion> mapped);
  size_t RegionOf(Bytes at) const;
  // Calls take(run, its bytes of `to`) for each run of a read until it returns false.
  template <class Take>
  bool ForRuns(const StoreRead& read, const Take& take) const;
  Status ReadChunk(const Run& run, int64_t k, std::span<std::byte> to, std::span<std::byte> buffer) const;
  std::string Described(const Run& run) const;
  Status WriteWithinBlock(int64_t begin, std::span<const std::byte> data, std::span<std::byte> buffer);
  Status CheckUnchanged(const File& file) const;

  Bytes spill_, size_;
  std::string folder_;
  std::unique_ptr<BlockFile> spill_file_;
  std::vector<File> files_;
  std::vector<Region> regions_;  // by address
  std::unique_ptr<IoTeam> readers_, writers_;
  std::atomic<int> awaited_ = 0;  // number of waiting callers
  std::mutex ends_;               // held while one block is read, changed in part and written: two writes may share it
};

}  // namespace temper
