#include "checkpoint/load_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cstring>
#include <set>

#include "checkpoint/row_quantiser.h"
#include "checkpoint/transposed_windows.h"
#include "format/conversion.h"
#include "format/quoted.h"
#include "program/buffer_names.h"

namespace temper {
namespace {

struct Job {
  ModelWeights::Entry entry;
  DevicePart weight, master;
  bool transposed = false;  // the file has it so
  // For a packed weight: `source` says which tensors hold it, of which `entry` is the first; `weight` is all of it, and
  // `row_pairs` its second layout, if it has one. Else null.
  const WeightSource* source = nullptr;
  DevicePart row_pairs;
  Bytes stored = {};  // of the file
};

// How many components ("mlp", "up_proj", "weight") two names have in common at their ends.
int CommonEnd(std::string_view a, std::string_view b) {
  int components = 0;
  for (size_t n = 1; n <= std::min(a.size(), b.size()) && a[a.size() - n] == b[b.size() - n]; ++n) {
    const bool border = n == a.size() || a[a.size() - n - 1] == '.' || n == b.size() || b[b.size() - n - 1] == '.';
    components += border;
  }
  return components;
}

// What a file may have meant by `name`: the tensor that ends most like it, if its last two components at least are
// the same (some tools save a model with other prefixes).
std::string NearestName(const ModelWeights& files, const std::string& name) {
  int most = 1;
  const StoredTensor* nearest = nullptr;
  for (const ModelWeights::Entry& e : files.entries()) {
    const int common = CommonEnd(e.tensor->name, name);
    if (common <= most) continue;
    most = common;
    nearest = e.tensor;
  }
  return nearest ? fmt::format(" (the nearest name there is {})", Quoted(nearest->name)) : "";
}

// `unused`: how many tensors the files have that the model does not need. Where most are missing and these could be
// them, a download of the same files has the same names; a few are missing from a folder that is incomplete.
Status Missing(const ModelWeights& files, const FileTensor& tensor, int64_t missing, int64_t wanted, int64_t unused) {
  const std::string& name = tensor.name;
  const std::string what =
      fmt::format("{}: tensor {} is missing{}{}", files.path(), name,
                  missing > 1 ? fmt::format(", and {} more of {}", missing - 1, wanted) : "", NearestName(files, name));
  std::string shard = files.ListedIn(name);
  for (size_t i = 0; shard.empty() && i < tensor.aliases.size(); ++i) shard = files.ListedIn(tensor.aliases[i]);
  if (!shard.empty()) {
    return NotFound(
        fmt::format("{}. The index says that it is in {}, which lacks it: index and shards are of different "
                    "models or versions: download them together",
                    what, Quoted(shard)));
  }
  if (unused >= missing && 2 * missing > wanted) {
    return NotFound(
        fmt::format("{}. The files have {} tensors under names that the model of config.json does not have: an unknown "
                    "layout, which a new download would have, too. Save the model again with transformers, by the "
                    "class that config.json names",
                    what, unused));
  }
  return NotFound(
      fmt::format("{}; config.json describes a model that has it. The folder is incomplete, or its files "
                  "are of different models: download it again",
                  what));
}

Status CheckStored(const ModelWeights::Entry& entry, const Shape& shape) {
  const auto stored = entry.tensor->type();
  if (!stored.ok()) return stored.status().WithContext(entry.file->path());
  if (!(stored->shape == shape)) {
    return Corrupt(
        fmt::format("{}: tensor {} is {} but config.json makes it {}: weights and config.json are of different models; "
                    "download both again from one place",
                    entry.file->path(), entry.tensor->name, stored->shape.ToString(), shape.ToString()));
  }
  if (stored->dtype != DType::kF32 && stored->dtype != DType::kBF16 && stored->dtype != DType::kF16) {
    return Unsupported(
        fmt::format("{}: tensor {} is {}; weights are read from F32, BF16 or F16: get the model in one of these",
                    entry.file->path(), entry.tensor->name, ToString(stored->dtype)));
  }
  return OkStatus();
}

Bytes StoredBytes(const ModelWeights::Entry& entry, const PartView& part) {
  return entry.tensor->bytes() * part.view.type.shape.elements() / std::max<int64_t>(part.global.elements(), 1);
}

// The lines of `part` that `piece`, of a part of the same shape, has.
PartView LinesOf(const PartView& part, const PartView& piece) {
  PartView lines = part;
  View& view = lines.view;
  view.type.shape = piece.view.type.shape;
  lines.begin = piece.begin;

  int64_t first = 0;  // element of `part`
  for (int d = 0; d < part.global.rank(); ++d) {
    first = first * part.view.type.shape[d] + piece.begin[d] - part.begin[d];
  }
  view.data += first * SizeOf(view.type.dtype);
  return lines;
}

// Of what is trained in another type than its master's each element is read once: the weight is the master rounded,
// whichever type the file has.
class TensorReader {
 public:
  explicit TensorReader(const ModelWeights& files) : files_(files), staging_(TensorFile::kStagingBytes) {}

  Status Read(const Job& job) {
    if (job.source != nullptr) return ReadPacked(job);
    const auto read = [&](const PartView& piece) { return ReadPart(job.entry, piece, job.transposed, staging_); };
    if (job.weight.part.view.type.dtype.quantised()) {
      return window_.Fill(
          job.weight, [&](const PartView& piece) { return quantiser_.Fill(job.entry, job.transposed, piece, read); });
    }
    if (!job.master.exists()) return window_.Fill(job.weight, read);
    TEMPER_CHECK(job.weight.part.view.type.shape == job.master.part.view.type.shape)
        << "a weight and its master are split differently";
    return window_.Fill(job.master, [&](const PartView& master) -> Status {
      TEMPER_RETURN_IF_ERROR(read(master));
      const DevicePart weight(LinesOf(job.weight.part, master), *job.weight.stream);
      return rounded_.Fill(weight, [&](const PartView& piece) {
        const View from = LinesOf(master, piece).view;
        const TensorType& type = piece.view.type;
        Convert(from.type.dtype, from.data, type.dtype, piece.view.data, type.shape.elements());
        return OkStatus();
      });
    });
  }

 private:
  // Reads windows of about 1 MiB of rows and packs each. Where the file has the transpose, each window takes a short
  // read for every row of the file: those windows are 32 MiB.
  Status ReadPacked(const Job& job) {
    const int64_t window = job.source->transposed() ? 16 << 20 : 512 << 10;  // elements
    const PartView& all = job.weight.part;
    const int64_t rows = all.rows(), columns = all.columns();
    const bool stack = all.view.type.shape.rank() == 3;  // a window is then one of its matrices
    const int64_t at_once =
        stack ? all.view.type.shape[1]
              : std::max(window / std::max<int64_t>(columns, 1) / kPanelLines, int64_t{1}) * kPanelLines;
    rows_.resize(static_cast<size_t>(std::min(at_once, rows) * columns));
    for (int64_t first = 0; first < rows; first += at_once) {
      const int64_t n = std::min(at_once, rows - first);
      PartView read({reinterpret_cast<std::byte*>(rows_.data()),
                     {all.view.type.dtype, stack ? Shape{1, n, columns} : Shape{n, columns}}},
                    all.global, all.begin);
      read.begin.set_dim(0, all.begin[0] + (stack ? first / at_once : first));
      for (const WeightSource::FilePart& part : job.source->FileParts(read)) {
        TEMPER_RETURN_IF_ERROR(ReadPart(FindTensor(files_, *part.tensor), part.part, part.transposed, staging_));
      }
      for (const DevicePart* packed : {&job.weight, &job.row_pairs}) {
        if (!packed->exists()) continue;
        const PackedPanels panels(packed->part.view.type.layout, rows, columns);
        panels.PackRows(first, n, rows_.data(), packed->part.view.data);
      }
    }
    return OkStatus();
  }

  const ModelWeights& files_;
  std::vector<std::byte> staging_;
  std::vector<uint16_t> rows_;
  RowQuantiser quantiser_;
  HostWindow window_, rounded_;
};

}  // namespace

Status ReadPart(const ModelWeights::Entry& entry, const PartView& part, bool transposed, std::span<std::byte> staging) {
  if (transposed && entry.quantised != nullptr && entry.quantised->transposed()) {  // the file has what memory has
    const QuantisedTensor& stored = *entry.quantised;
    if (part.is_one_run()) return stored.ReadTransposedAs(part.RowBegin(0), part.view.type.dtype, part.view.raw());
    const auto row_bytes = part.columns() * SizeOf(part.view.type.dtype);
    for (int64_t r = 0; r < part.rows(); ++r) {
      TEMPER_RETURN_IF_ERROR(stored.ReadTransposedAs(
          part.RowBegin(r), part.view.type.dtype,
          part.view.raw().subspan(static_cast<size_t>(r * row_bytes), static_cast<size_t>(row_bytes))));
    }
    return OkStatus();
  }
  if (transposed) {
    return FillTransposed(part, [&](const PartView& rows) { return ReadPart(entry, rows, false, staging); });
  }
  const DType dtype = part.view.type.dtype;
  TEMPER_CHECK(part.global.elements() == entry.tensor->elements())
      << entry.tensor->ToString() << " read as part of " << part.global.ToString();
  const int64_t at_once = part.run_rows(), rows = part.rows();
  const auto row_bytes = static_cast<size_t>(part.columns() * SizeOf(dtype));
  for (int64_t r = 0; r < rows; r += at_once) {
    const auto run =
        part.view.raw().subspan(static_cast<size_t>(r) * row_bytes, static_cast<size_t>(at_once) * row_bytes);
    TEMPER_RETURN_IF_ERROR(entry.ReadElementsAs(part.RowBegin(r), dtype, run, staging));
  }
  return OkStatus();
}

ModelWeights::Entry FindTensor(const ModelWeights& files, const FileTensor& tensor) {
  ModelWeights::Entry entry = files.Find(tensor.name);
  for (size_t i = 0; entry.tensor == nullptr && i < tensor.aliases.size(); ++i) entry = files.Find(tensor.aliases[i]);
  return entry;
}

Result<bool> HaveSameElements(const ModelWeights::Entry& a, const ModelWeights::Entry& b) {
  constexpr int64_t kPiece = 64 << 10;  // elements
  TEMPER_ASSIGN_OR_RETURN(const TensorType type_a, a.tensor->type());
  TEMPER_ASSIGN_OR_RETURN(const TensorType type_b, b.tensor->type());
  if (type_a.shape != type_b.shape || !IsFloating(type_a.dtype) || !IsFloating(type_b.dtype)) return false;
  std::vector<float> x(kPiece), y(kPiece);
  const int64_t elements = type_a.shape.elements();
  for (int64_t first = 0; first < elements; first += kPiece) {
    const auto count = static_cast<size_t>(std::min(kPiece, elements - first));
    const auto part_x = std::span(x).first(count), part_y = std::span(y).first(count);
    TEMPER_RETURN_IF_ERROR(a.ReadElementsAs(first, DType::kF32, std::as_writable_bytes(part_x)));
    TEMPER_RETURN_IF_ERROR(b.ReadElementsAs(first, DType::kF32, std::as_writable_bytes(part_y)));
    if (!std::equal(part_x.begin(), part_x.end(), part_y.begin())) return false;
  }
  return true;
}

Status CheckTensors(const ModelWeights& files, std::span<const FileTensor> tensors) {
  int64_t missing = 0;
  const FileTensor* first_missing = nullptr;
  for (const FileTensor& tensor : tensors) {
    const ModelWeights::Entry entry = FindTensor(files, tensor);
    if (entry.tensor == nullptr) {
      ++missing;
      if (first_missing == nullptr) first_missing = &tensor;
      continue;
    }
    TEMPER_RETURN_IF_ERROR(CheckStored(entry, tensor.shape));
  }
  if (missing == 0) return OkStatus();
  return Missing(files, *first_missing, missing, std::ssize(tensors), std::ssize(UnusedTensors(files, tensors)));
}

Status LoadWeights(const ModelWeights& files, std::span<const StoredWeight> weights, const BufferLookup& buffer,
                   const std::function<void(Bytes, Bytes)>& progress) {
  std::vector<Job> jobs;
  Bytes total{};
  for (const StoredWeight& stored : weights) {
    const DevicePart weight = buffer(stored.name), master = buffer(MasterName(stored.name));
    if (!weight.exists()) continue;  // not a value of this Program: nothing to read
    const bool packed = weight.part.view.type.packed();
    PartView rows = weight.part;
    if (packed) rows.view = {.type = {weight.part.view.type.dtype, weight.part.view.type.shape}};
    const auto parts = stored.source.FileParts(rows);
    const auto of_master = master.exists() ? stored.source.FileParts(master.part) : decltype(parts)();
    TEMPER_CHECK(!master.exists() || of_master.size() == parts.size())
        << stored.name << " and its master are split differently";
    for (size_t i = 0; i < parts.size(); ++i) {
      const FileTensor& tensor = *parts[i].tensor;
      Job job{FindTensor(files, tensor), DevicePart(parts[i].part, *weight.stream), {}, parts[i].transposed};
      if (master.exists()) job.master = DevicePart(of_master[i].part, *master.stream);
      if (job.entry.tensor == nullptr) return Missing(files, tensor, /*missing=*/1, /*wanted=*/1, /*unused=*/0);
      TEMPER_RETURN_IF_ERROR(CheckStored(job.entry, tensor.shape));
      job.stored = StoredBytes(job.entry, job.weight.part);
      total += job.stored;
      if (packed && i > 0) {
        jobs.back().stored += job.stored;
        continue;
      }
      if (packed) {
        job.weight = weight;
        job.row_pairs = buffer(RowPairsName(stored.name));
        job.source = &stored.source;
        TEMPER_CHECK(weight.on_host() && !master.exists()) << stored.name << " is packed";
      }
      jobs.push_back(job);
    }
  }
  // Reads go in the order of the files, for the disk's sake.
  std::stable_sort(jobs.begin(), jobs.end(), [](const Job& a, const Job& b) {
    return std::pair(a.entry.file, a.entry.begin()) < std::pair(b.entry.file, b.entry.begin());
  });
  TensorReader reader(files);
  Bytes done{};
  for (const Job& job : jobs) {
    TEMPER_RETURN_IF_ERROR(reader.Read(job));
    done += job.stored;
    if (progress) progress(done, total);
  }
  return OkStatus();
}

bool IsIgnored(std::string_view name, std::span<const std::string> ignored) {
  return std::any_of(ignored.begin(), ignored.end(), [&](const std::string& part) {
    return name.ends_with(part) || (part.ends_with('.') && name.find(part) != name.npos);
  });
}

std::vector<std::string> UnusedTensors(const ModelWeights& files, std::span<const FileTensor> tensors,
                                       std::span<const std::string> ignored) {
  std::set<std::string_view> known;
  for (const FileTensor& tensor : tensors) {
    known.insert(tensor.name);
    known.insert(tensor.aliases.begin(), tensor.aliases.end());
  }
  std::vector<std::string> unused;
  for (const ModelWeights::Entry& e : files.entries()) {
    const std::string& name = e.tensor->name;
    if (!IsIgnored(name, ignored) && !known.contains(name)) unused.push_back(name);
  }
  return unused;
}

}  // namespace temper
