// The manifest of a checkpoint folder (docs/formats/checkpoint.md): which tensors it holds, where their bytes are
// stored, and where the run stood. Its presence under its name is the commit of the folder.
//
// The bytes depend only on the run: no times, no paths, keys sorted.
#pragma once

#include <cstdint>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"
#include "checkpoint/slices.h"
#include "format/json.h"
#include "tensor/shape.h"

namespace temper {

inline constexpr char kManifestFile[] = "manifest.json";
inline constexpr char kClockFile[] = "clock.json";  // {"seconds": 12.5}, beside the manifest, which does not cover it
inline constexpr int64_t kCheckpointVersion = 1;
inline constexpr char kUnsaidOptimizer[] = "adamw";  // of a manifest that names none

enum class CheckpointKind : uint8_t { kLora, kFull };
std::string_view ToString(CheckpointKind kind);  // "lora", "full"

// Where the run stood: what a resumed run starts from.
struct RunState {
  int64_t step = 0;         // optimizer steps done
  int64_t total_steps = 0;  // of the whole run: the schedule's length
  struct Sampler {          // as SamplerState (data/sampler.h)
    uint64_t seed = 0;
    int64_t epoch = 0, next_row = 0;
    bool operator==(const Sampler&) const = default;
  } sampler;
  int64_t tokens = 0;               // trained on so far
  std::optional<double> eval_loss;  // of an evaluation at this very step
  std::optional<double> best_eval_loss;
  // Where evaluations are compared by another number than the lowest loss: best_eval_loss is then absent.
  struct BestBy {
    std::string metric;
    bool greater_is_better = true;
    std::optional<double> value, best;  // as eval_loss and best_eval_loss
    bool operator==(const BestBy&) const = default;
  };
  std::optional<BestBy> best_by;
  int64_t best_step = 0;         // the step that gave the best
  std::string data_fingerprint;  // of the rows in order: a resumed run must see the same
  std::string eval_fingerprint;  // of the rows that eval_loss was measured on; empty: of an older Temper
  Json extra = Json::object();   // the caller's own

  bool operator==(const RunState&) const = default;
};
Json ToJson(const RunState& state);
Result<RunState> ParseRunState(const Json& json, const std::string& where);

// What must be equal for a resumed run to give the same bits: threads, instruction set, library versions, the Programs'
// hashes, and the compiler's decisions. The caller's plain data; the checkpoint only stores it.
struct RunIdentity {
  std::string program_hash;                           // of the training Program: 16 hexadecimal digits
  std::map<std::string, std::string> other_programs;  // the same of the run's others, by name; empty: not saved
  Json environment = Json::object();  // {"threads": 2, "isa": "avx512_bf16", "libraries": {"oneDNN": "2.6.3"}}
  Json decisions = Json::object();

  bool operator==(const RunIdentity&) const = default;
};
// "threads 2 -> 4; program 0123.. -> 4567..": the differences, empty if there are none.
std::string DescribeDifferences(const RunIdentity& saved, const RunIdentity& now);

struct Manifest {
  using Tensor = SlicedTensor;
  using Slice = SlicedTensor::Slice;
  struct File {
    std::string name;
    Bytes bytes;
    // ChecksumHex of the whole file or, if it holds tensors, of the bytes before its data.
    std::string checksum;
    bool header_only = false;
  };

  CheckpointKind kind = CheckpointKind::kLora;
  std::string optimizer = kUnsaidOptimizer;  // of the states among the tensors: an UpdateRule's name
  RunState state;
  RunIdentity identity;
  std::vector<File> files;      // all of the folder but the manifest and the clock; sorted by name
  std::vector<Tensor> tensors;  // sorted by name
  // Beside the manifest, since it differs between equal runs: seconds that the run took so far. 0 if unknown.
  double seconds = 0;

  const Tensor* Find(std::string_view name) const;  // nullptr where absent
};

// The text ends in its own checksum, so that a changed digit is detected.
std::string FormatManifest(const Manifest& manifest);
// `where` names the file. Errors: kCorrupt, kUnsupported for another version. `seconds` is not in the text.
Result<Manifest> ParseManifest(std::string_view text, const std::string& where);
// What one rank of several has written, for the rank that writes the manifest: slices are only this rank's.
struct ManifestFragment {
  std::vector<Manifest::File> files;
  std::vector<Manifest::Tensor> tensors;
};
std::string FormatFragment(const ManifestFragment& fragment);
Result<ManifestFragment> ParseFragment(std::string_view text, const std::string& where);

// Reads FOLDER/manifest.json. kNotFound if there is none: the folder is not a (complete) checkpoint.
Result<Manifest> ReadManifest(Env& env, const std::string& folder);

}  // namespace temper
