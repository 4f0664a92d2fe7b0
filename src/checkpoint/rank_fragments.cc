#include "checkpoint/rank_fragments.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <chrono>
#include <map>
#include <memory>
#include <thread>

#include "checkpoint/checkpoint_staging.h"
#include "checkpoint/slices.h"
#include "format/checksum.h"
#include "format/quoted.h"
#include "format/safetensors.h"

namespace temper {
namespace {

using WaitClock = std::chrono::steady_clock;

constexpr std::string_view kFragmentPrefix = "rank-";
constexpr size_t kPartPrefix = 11;  // "rank-00001."
constexpr std::chrono::milliseconds kPoll{5};

bool IsPartFile(std::string_view name) {
  return name.starts_with(kFragmentPrefix);
}

std::string FragmentPath(const std::string& staging, int rank) {
  return JoinPath(staging, fmt::format("{}{:05}.json", kFragmentPrefix, rank));
}

}  // namespace

std::string PartFile(const std::string& file, int rank) {
  return fmt::format("{}{:05}.{}", kFragmentPrefix, rank, file);
}

Status PublishFragment(Env& env, const std::string& staging, int rank, const ManifestFragment& fragment) {
  return WriteTextFileAtomically(env, FragmentPath(staging, rank), FormatFragment(fragment));
}

Result<std::vector<ManifestFragment>> AwaitFragments(Env& env, const std::string& staging, int ranks, Seconds patience,
                                                     const std::atomic<bool>& cancelled) {
  std::vector<int> missing;
  for (int rank = 1; rank < ranks; ++rank) missing.push_back(rank);
  auto last = WaitClock::now();
  while (true) {
    const bool came = std::erase_if(missing, [&](int r) { return env.IsFile(FragmentPath(staging, r)); }) > 0;
    if (missing.empty()) break;
    if (came) last = WaitClock::now();
    if (cancelled) return Interrupted(fmt::format("the run ended before ranks {} had saved", fmt::join(missing, ", ")));
    if (std::chrono::duration<double>(WaitClock::now() - last).count() > patience.v) {
      return IoError(fmt::format("{}: ranks {} have not written their parts within {}", staging,
                                 fmt::join(missing, ", "), ToString(patience)));
    }
    std::this_thread::sleep_for(kPoll);
  }
  std::vector<ManifestFragment> fragments;
  for (int rank = 1; rank < ranks; ++rank) {
    const std::string path = FragmentPath(staging, rank);
    TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path));
    TEMPER_ASSIGN_OR_RETURN(ManifestFragment fragment, ParseFragment(text, path));
    fragments.push_back(std::move(fragment));
  }
  return fragments;
}

Status AddFragments(const std::vector<ManifestFragment>& fragments, const std::string& staging, Manifest* manifest) {
  std::map<std::string_view, size_t> places;  // in manifest->tensors
  std::vector<Manifest::Tensor>& tensors = manifest->tensors;
  size_t total = tensors.size();
  for (const ManifestFragment& f : fragments) total += f.tensors.size();
  tensors.reserve(total);  // the keys of `places` point into it
  for (size_t i = 0; i < tensors.size(); ++i) places[tensors[i].name] = i;
  for (const ManifestFragment& fragment : fragments) {
    manifest->files.insert(manifest->files.end(), fragment.files.begin(), fragment.files.end());
    for (const Manifest::Tensor& t : fragment.tensors) {
      const auto it = places.find(t.name);
      if (it == places.end()) {
        tensors.push_back(t);
        places[tensors.back().name] = tensors.size() - 1;
        continue;
      }
      Manifest::Tensor& known = tensors[it->second];
      if (known.type != t.type) {
        return Corrupt(fmt::format("{}: tensor {} is {} on one rank and {} on another", staging, Quoted(t.name),
                                   known.type.ToString(), t.type.ToString()));
      }
      known.slices.insert(known.slices.end(), t.slices.begin(), t.slices.end());
    }
  }
  for (const Manifest::Tensor& t : tensors) TEMPER_RETURN_IF_ERROR(CheckSlices(t, staging));
  return OkStatus();
}

namespace {

// Copies a tensor from its slices and returns its checksum. Slices of whole rows, as every mesh but those with tensor
// parallelism has them, stream through: such a tensor may be an embedding table of gigabytes.
Result<std::string> JoinTensor(const Manifest::Tensor& t, const SliceFiles& files, SafetensorsWriter& writer) {
  const Shape& shape = t.type.shape;
  const auto is_rows = [&](const Manifest::Slice& s) {
    for (int d = 1; d < shape.rank(); ++d) {
      if (s.shape[d] != shape[d]) return false;
    }
    return shape.rank() > 0;
  };
  if (!std::all_of(t.slices.begin(), t.slices.end(), is_rows)) {
    std::vector<std::byte> memory(static_cast<size_t>(t.type.bytes().v));
    TEMPER_RETURN_IF_ERROR(LoadSlices(t, files, PartView(View{memory.data(), t.type})));
    TEMPER_RETURN_IF_ERROR(writer.Append(t.name, memory));
    return ChecksumHex(memory);
  }
  Manifest::Tensor sorted = t;
  std::sort(sorted.slices.begin(), sorted.slices.end(),
            [](const Manifest::Slice& a, const Manifest::Slice& b) { return a.begin[0] < b.begin[0]; });
  Checksum checksum;
  int64_t next = 0;  // byte of the tensor
  const auto append = [&](int64_t at, std::span<const std::byte> bytes) {
    TEMPER_CHECK(at == next) << t.name << ": byte " << at << " after " << next;
    next += std::ssize(bytes);
    checksum.Update(bytes);
    return writer.Append(t.name, bytes);
  };
  TEMPER_RETURN_IF_ERROR(LoadSlices(sorted, files, Box{PartView(View{nullptr, t.type}).begin, shape}, append));
  return checksum.Hex();
}

}  // namespace

Status JoinParts(Env& env, const std::string& staging, Manifest* manifest) {
  std::map<std::string, std::unique_ptr<SafetensorsFile>, std::less<>> parts;
  for (const Manifest::File& f : manifest->files) {
    if (!IsPartFile(f.name)) continue;
    TEMPER_ASSIGN_OR_RETURN(SafetensorsFile opened, SafetensorsFile::Open(env, JoinPath(staging, f.name)));
    parts[f.name] = std::make_unique<SafetensorsFile>(std::move(opened));
  }
  const SliceFiles part_files = [&](const std::string& name) -> const SafetensorsFile& { return *parts.at(name); };
  std::map<std::string, std::map<std::string, Manifest::Tensor*>> joined;  // by file, then by name
  for (Manifest::Tensor& t : manifest->tensors) {
    const Manifest::Slice& first = t.slices.front();
    if (IsPartFile(first.file)) joined[first.file.substr(kPartPrefix)][t.name] = &t;
  }
  std::erase_if(manifest->files, [](const Manifest::File& f) { return IsPartFile(f.name); });
  for (auto& [file, tensors] : joined) {
    std::vector<TensorDeclaration> declared;
    for (const auto& [name, t] : tensors) declared.push_back({name, t->type});
    TEMPER_ASSIGN_OR_RETURN(SafetensorsWriter writer,
                            SafetensorsWriter::Create(env, JoinPath(staging, file), std::move(declared),
                                                      SafetensorsWriter::DefaultMetadata(), WriteMode::kDirect));
    for (const StoredTensor& stored : writer.order()) {
      Manifest::Tensor& t = *tensors.at(stored.name);
      TEMPER_ASSIGN_OR_RETURN(std::string checksum, JoinTensor(t, part_files, writer));
      const PartView whole(View{nullptr, t.type});
      t.slices = {{file, stored.name, whole.begin, t.type.shape, std::move(checksum)}};
    }
    manifest->files.push_back(TensorFileEntry(file, writer));
    TEMPER_RETURN_IF_ERROR(writer.Finish());
  }
  return OkStatus();
}

Status RemoveFragments(Env& env, const std::string& staging) {
  TEMPER_ASSIGN_OR_RETURN(const std::vector<std::string> names, env.List(staging));
  for (const std::string& name : names) {
    if (IsPartFile(name)) TEMPER_RETURN_IF_ERROR(env.RemoveFile(JoinPath(staging, name)));
  }
  return OkStatus();
}

}  // namespace temper
