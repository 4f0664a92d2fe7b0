#include "checkpoint/load_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "program/buffer_names.h"

namespace temper {
namespace {

struct Job {
  ModelWeights::Entry entry;
  PartView weight, master;  // data is null where there is none
};

Result<Job> MakeJob(const ModelWeights& files, const WeightNames& names, const BufferLookup& buffer) {
  Job job{.entry = files.Find(names.name), .weight = buffer(names.name), .master = buffer(MasterName(names.name))};
  for (size_t i = 0; job.entry.tensor == nullptr && i < names.aliases.size(); ++i)
    job.entry = files.Find(names.aliases[i]);
  if (job.weight.view.data == nullptr) return job;  // not a value of this Program: nothing to read
  if (job.entry.tensor == nullptr) {
    return NotFound(
        fmt::format("{}: tensor {} is missing; config.json describes a model that has it", files.path(), names.name));
  }
  TEMPER_ASSIGN_OR_RETURN(const TensorType stored, job.entry.tensor->type());
  if (!(stored.shape == job.weight.global)) {
    return Corrupt(fmt::format("{}: tensor {} is {} but config.json makes it {}", job.entry.file->path(),
                               job.entry.tensor->name, stored.shape.ToString(), job.weight.global.ToString()));
  }
  if (stored.dtype != DType::kF32 && stored.dtype != DType::kBF16 && stored.dtype != DType::kF16) {
    return Unsupported(fmt::format("{}: tensor {} is {}; weights are read from F32, BF16 or F16",
                                   job.entry.file->path(), job.entry.tensor->name, ToString(stored.dtype)));
  }
  return job;
}

// Of the file.
Bytes StoredBytes(const Job& job) {
  const int64_t elements = job.weight.view.type.shape.elements();
  return job.entry.tensor->bytes() * elements / std::max<int64_t>(job.weight.global.elements(), 1);
}

}  // namespace

Status ReadPart(const ModelWeights::Entry& entry, const PartView& part, std::span<std::byte> staging) {
  const DType dtype = part.view.type.dtype;
  TEMPER_CHECK(part.global.elements() == entry.tensor->elements())
      << entry.tensor->ToString() << " read as part of " << part.global.ToString();
  const bool rows_are_whole = part.global.rank() < 2 || part.columns() == part.global[1];
  if (rows_are_whole) {
    return entry.file->ReadElementsAs(entry.tensor->name, part.RowBegin(0), dtype, part.view.raw(), staging);
  }
  const auto row_bytes = static_cast<size_t>(part.columns() * SizeOf(dtype));
  for (int64_t r = 0; r < part.rows(); ++r) {
    TEMPER_RETURN_IF_ERROR(entry.file->ReadElementsAs(
        entry.tensor->name, part.RowBegin(r), dtype,
        part.view.raw().subspan(static_cast<size_t>(r) * row_bytes, row_bytes), staging));
  }
  return OkStatus();
}

Status LoadWeights(const ModelWeights& files, std::span<const WeightNames> weights, const BufferLookup& buffer,
                   const std::function<void(Bytes, Bytes)>& progress) {
  std::vector<Job> jobs;
  Bytes total{};
  for (const WeightNames& names : weights) {
    TEMPER_ASSIGN_OR_RETURN(const Job job, MakeJob(files, names, buffer));
    if (job.weight.view.data == nullptr) continue;
    total += StoredBytes(job);
    jobs.push_back(job);
  }
  // Reads go in the order of the files, for the disk's sake.
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
    return std::pair(a.entry.file, a.entry.tensor->begin) < std::pair(b.entry.file, b.entry.tensor->begin);
  });
  std::vector<std::byte> staging(SafetensorsFile::kStagingBytes);
  Bytes done{};
  for (const Job& job : jobs) {
    TEMPER_RETURN_IF_ERROR(ReadPart(job.entry, job.weight, staging));
    if (job.master.view.data != nullptr) TEMPER_RETURN_IF_ERROR(ReadPart(job.entry, job.master, staging));
    done += StoredBytes(job);
    if (progress) progress(done, total);
  }
  return OkStatus();
}

std::vector<std::string> UnusedTensors(const ModelWeights& files, std::span<const WeightNames> weights) {
  std::set<std::string_view> known;
  for (const WeightNames& w : weights) {
    known.insert(w.name);
    known.insert(w.aliases.begin(), w.aliases.end());
  }
  std::vector<std::string> unused;
  for (const ModelWeights::Entry& e : files.entries()) {
    // Old files carry the rotary frequencies, which follow from the configuration.
    if (!known.contains(e.tensor->name) && !e.tensor->name.ends_with("rotary_emb.inv_freq"))
      unused.push_back(e.tensor->name);
  }
  return unused;
}

}  // namespace temper
