#include "checkpoint/manifest.h"

#include <fmt/core.h>

#include <algorithm>
#include <set>

#include "checkpoint/companion_files.h"
#include "format/checksum.h"
#include "format/json.h"
#include "format/quoted.h"

namespace temper {
namespace {

constexpr char kFormat[] = "temper checkpoint";
// 10^5 tensors with their moments take 100 MB.
constexpr Bytes kMaxManifest = MiB(256);
// No tensor of the next decade has more elements; products of sizes below it do not overflow.
constexpr int64_t kMaxElements = int64_t{1} << 48;

// The manifest's last lines: its own checksum, over all bytes before them.
constexpr std::string_view kTailBegin = " \"checksum\": \"", kTailEnd = "\"\n}\n";
constexpr size_t kHexDigits = 16;
constexpr size_t kTailSize = kTailBegin.size() + kHexDigits + kTailEnd.size();

std::string Dump(const Json& json) {
  return DumpJson(json);
}

std::string ChecksumOfText(std::string_view text) {
  return ChecksumHex(std::as_bytes(std::span(text)));
}

Json ToJson(const Shape& shape) {
  Json dims = Json::array();
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape.dim(i));
  return dims;
}

Json ToJson(const Manifest::Tensor& tensor) {
  Json slices = Json::array();
  for (const Manifest::Slice& s : tensor.slices) {
    slices.push_back({{"file", s.file},
                      {"stored_as", s.stored_as},
                      {"begin", ToJson(s.begin)},
                      {"shape", ToJson(s.shape)},
                      {"checksum", s.checksum}});
  }
  Json json = {{"name", tensor.name},
               {"dtype", std::string(ToString(tensor.type.dtype))},
               {"shape", ToJson(tensor.type.shape)},
               {"slices", std::move(slices)}};
  if (!tensor.kind.empty()) json["kind"] = tensor.kind;
  return json;
}

Json ToJson(const Manifest::File& file) {
  return {{"name", file.name},
          {"bytes", file.bytes.v},
          {"checksum", file.checksum},
          {"covers", file.header_only ? "header" : "all"}};
}

// One element per line: a person can read it, diff shows what changed.
template <class T>
std::string Lines(const std::vector<T>& items) {
  std::string text = "[";
  for (const T& item : items) text += (text.size() == 1 ? "\n  " : ",\n  ") + Dump(ToJson(item));
  return text + (items.empty() ? "]" : "\n ]");
}

// --- reading ---

Result<std::string> Text(const Json& object, const char* key, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || !it->is_string()) return Corrupt(fmt::format("{}: '{}' should be a text", where, key));
  return it->get<std::string>();
}

Result<Json> Member(const Json& object, const char* key, Json::value_t type, const std::string& where) {
  const auto it = object.find(key);
  if (it == object.end() || it->type() != type) {
    return Corrupt(fmt::format("{}: '{}' is missing or of the wrong type", where, key));
  }
  return *it;
}

Result<int64_t> Count(const Json& object, const char* key, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const int64_t n, RequireInt(object, key, where));
  if (n < 0) return Corrupt(fmt::format("{}: '{}' is {}, should not be negative", where, key, n));
  return n;
}

Result<Shape> ParseShape(const Json& object, const char* key, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Json dims, Member(object, key, Json::value_t::array, where));
  Shape shape;
  int64_t elements = 1;
  for (const Json& d : dims) {
    const int64_t n = d.is_number_integer() ? d.get<int64_t>() : -1;
    if (shape.rank() == Shape::kMaxRank || n < 0 || n > kMaxElements || (n > 0 && elements > kMaxElements / n)) {
      return Corrupt(fmt::format("{}: '{}' should be at most {} sizes of a tensor but is {}", where, key,
                                 Shape::kMaxRank, Dump(dims).substr(0, 80)));
    }
    elements *= std::max<int64_t>(n, 1);
    shape.Append(n);
  }
  return shape;
}

// A file of the folder itself, or a chat template below it: the manifest must not make Temper read elsewhere.
Result<std::string> FileName(const Json& object, const char* key, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(std::string name, Text(object, key, where));
  if (IsInCompanionFolder(name)) return name;
  if (name.empty() || name[0] == '.' || name.find_first_of(std::string_view("/\\\0", 3)) != name.npos) {
    return Corrupt(fmt::format("{}: {} is not a plain file name", where, Quoted(name)));
  }
  return name;
}

Result<std::string> ParseChecksum(const Json& object, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(std::string hex, Text(object, "checksum", where));
  if (hex.size() != kHexDigits || hex.find_first_not_of("0123456789abcdef") != hex.npos) {
    return Corrupt(fmt::format("{}: a checksum should be 16 hexadecimal digits but is {}", where, Quoted(hex)));
  }
  return hex;
}

Result<Manifest::File> ParseFile(const Json& json, const std::string& where) {
  if (!json.is_object()) return Corrupt(where + ": 'files' should hold objects");
  Manifest::File file;
  TEMPER_ASSIGN_OR_RETURN(file.name, FileName(json, "name", where));
  TEMPER_ASSIGN_OR_RETURN(file.bytes.v, Count(json, "bytes", where));
  TEMPER_ASSIGN_OR_RETURN(file.checksum, ParseChecksum(json, where));
  TEMPER_ASSIGN_OR_RETURN(const std::string covers, Text(json, "covers", where));
  if (covers != "all" && covers != "header") return Corrupt(fmt::format("{}: 'covers' is {}", where, Quoted(covers)));
  file.header_only = covers == "header";
  return file;
}

Result<Manifest::Tensor> ParseTensor(const Json& json, const std::string& where) {
  if (!json.is_object()) return Corrupt(where + ": 'tensors' should hold objects");
  Manifest::Tensor tensor;
  TEMPER_ASSIGN_OR_RETURN(tensor.name, Text(json, "name", where));
  const std::string place = fmt::format("{}, tensor {}", where, Quoted(tensor.name));
  TEMPER_ASSIGN_OR_RETURN(const std::string dtype, Text(json, "dtype", place));
  auto parsed = ParseDType(dtype);
  if (!parsed.ok()) return Corrupt(fmt::format("{}: dtype {} is unknown", place, Quoted(dtype)));
  tensor.type.dtype = *parsed;
  TEMPER_ASSIGN_OR_RETURN(tensor.type.shape, ParseShape(json, "shape", place));
  TEMPER_ASSIGN_OR_RETURN(const Json slices, Member(json, "slices", Json::value_t::array, place));
  for (const Json& s : slices) {
    if (!s.is_object()) return Corrupt(place + ": 'slices' should hold objects");
    Manifest::Slice slice;
    TEMPER_ASSIGN_OR_RETURN(slice.file, FileName(s, "file", place));
    TEMPER_ASSIGN_OR_RETURN(slice.stored_as, Text(s, "stored_as", place));
    TEMPER_ASSIGN_OR_RETURN(slice.begin, ParseShape(s, "begin", place));
    TEMPER_ASSIGN_OR_RETURN(slice.shape, ParseShape(s, "shape", place));
    TEMPER_ASSIGN_OR_RETURN(slice.checksum, ParseChecksum(s, place));
    tensor.slices.push_back(std::move(slice));
  }
  if (!json.contains("kind")) return tensor;
  TEMPER_ASSIGN_OR_RETURN(tensor.kind, Text(json, "kind", place));
  if (tensor.kind != ToString(CheckpointKind::kFull)) {
    return Corrupt(fmt::format("{}: 'kind' is {}", place, Quoted(tensor.kind)));
  }
  return tensor;
}

Status ParseLists(const Json& json, const std::string& where, std::vector<Manifest::File>* files,
                  std::vector<Manifest::Tensor>* tensors) {
  TEMPER_ASSIGN_OR_RETURN(const Json file_list, Member(json, "files", Json::value_t::array, where));
  for (const Json& file : file_list) {
    TEMPER_ASSIGN_OR_RETURN(Manifest::File parsed, ParseFile(file, where));
    files->push_back(std::move(parsed));
  }
  TEMPER_ASSIGN_OR_RETURN(const Json tensor_list, Member(json, "tensors", Json::value_t::array, where));
  for (const Json& tensor : tensor_list) {
    TEMPER_ASSIGN_OR_RETURN(Manifest::Tensor parsed, ParseTensor(tensor, where));
    tensors->push_back(std::move(parsed));
  }
  return OkStatus();
}

Status CheckTensorNames(const Manifest& m, const std::string& where) {
  std::set<std::string_view> tensor_files;
  for (size_t i = 1; i < m.files.size(); ++i) {
    if (m.files[i - 1].name >= m.files[i].name) return Corrupt(where + ": 'files' is not sorted, or names one twice");
  }
  for (const Manifest::File& f : m.files) {
    if (f.header_only) tensor_files.insert(f.name);
  }
  for (size_t i = 0; i < m.tensors.size(); ++i) {
    if (i > 0 && m.tensors[i - 1].name >= m.tensors[i].name) {
      return Corrupt(where + ": 'tensors' is not sorted, or names one twice");
    }
    TEMPER_RETURN_IF_ERROR(CheckSlices(m.tensors[i], where));
    for (const Manifest::Slice& s : m.tensors[i].slices) {
      if (!tensor_files.contains(s.file)) {
        return Corrupt(fmt::format("{}: tensor {} lies in {}, which 'files' does not list", where,
                                   Quoted(m.tensors[i].name), Quoted(s.file)));
      }
    }
  }
  return OkStatus();
}

// The text without its last lines, which must prove it.
Status CheckOwnChecksum(std::string_view text, const std::string& where) {
  const std::string_view tail = text.substr(text.size() - std::min(text.size(), kTailSize));
  if (tail.size() != kTailSize || !tail.starts_with(kTailBegin) || !tail.ends_with(kTailEnd)) {
    return Corrupt(where + " does not end in its checksum: it is truncated or was edited");
  }
  const std::string expected = ChecksumOfText(text.substr(0, text.size() - kTailSize));
  if (tail.substr(kTailBegin.size(), kHexDigits) == expected) return OkStatus();
  return Corrupt(fmt::format("{} is damaged or was edited: its checksum is {}, not {}", where, expected,
                             Quoted(tail.substr(kTailBegin.size(), kHexDigits))));
}

double ReadSeconds(Env& env, const std::string& folder) {
  const std::string path = JoinPath(folder, kClockFile);
  if (!env.IsFile(path)) return 0;
  const auto json = ReadJsonFile(env, path);
  if (!json.ok() || !json->is_object()) return 0;
  const auto seconds = NumberOr(*json, "seconds", 0, path);
  return seconds.ok() && *seconds > 0 ? *seconds : 0;
}

}  // namespace

std::string_view ToString(CheckpointKind kind) {
  return kind == CheckpointKind::kLora ? "lora" : "full";
}

Json ToJson(const RunState& s) {
  const auto number = [](const std::optional<double>& x) { return x ? Json(*x) : Json(); };
  Json json = {{"step", s.step},
               {"total_steps", s.total_steps},
               {"sampler", {{"seed", s.sampler.seed}, {"epoch", s.sampler.epoch}, {"next_row", s.sampler.next_row}}},
               {"tokens", s.tokens},
               {"eval_loss", number(s.eval_loss)},
               {"best_eval_loss", number(s.best_eval_loss)},
               {"best_step", s.best_step},
               {"data_fingerprint", s.data_fingerprint},
               {"eval_fingerprint", s.eval_fingerprint},
               {"extra", s.extra}};
  if (const auto& by = s.best_by) {
    json["best_by"] = {{"metric", by->metric},
                       {"greater_is_better", by->greater_is_better},
                       {"value", number(by->value)},
                       {"best", number(by->best)}};
  }
  return json;
}

Result<RunState> ParseRunState(const Json& json, const std::string& where) {
  RunState s;
  TEMPER_ASSIGN_OR_RETURN(s.step, Count(json, "step", where));
  TEMPER_ASSIGN_OR_RETURN(s.total_steps, Count(json, "total_steps", where));
  TEMPER_ASSIGN_OR_RETURN(const Json sampler, Member(json, "sampler", Json::value_t::object, where));
  const auto seed = sampler.find("seed");
  if (seed == sampler.end() || !seed->is_number_integer()) {
    return Corrupt(where + ": the sampler's 'seed' should be a whole number");
  }
  s.sampler.seed = seed->get<uint64_t>();
  TEMPER_ASSIGN_OR_RETURN(s.sampler.epoch, Count(sampler, "epoch", where));
  TEMPER_ASSIGN_OR_RETURN(s.sampler.next_row, Count(sampler, "next_row", where));
  TEMPER_ASSIGN_OR_RETURN(s.tokens, Count(json, "tokens", where));
  const auto read = [&where](const Json& from, const char* key, std::optional<double>* value) -> Status {
    const auto it = from.find(key);
    if (it == from.end() || it->is_null()) return OkStatus();
    if (!it->is_number()) return Corrupt(fmt::format("{}: '{}' should be a number", where, key));
    *value = it->get<double>();
    return OkStatus();
  };
  TEMPER_RETURN_IF_ERROR(read(json, "eval_loss", &s.eval_loss));
  TEMPER_RETURN_IF_ERROR(read(json, "best_eval_loss", &s.best_eval_loss));
  if (json.contains("best_by")) {
    TEMPER_ASSIGN_OR_RETURN(const Json by, Member(json, "best_by", Json::value_t::object, where));
    s.best_by = RunState::BestBy();
    TEMPER_ASSIGN_OR_RETURN(s.best_by->metric, Text(by, "metric", where));
    const auto greater = by.find("greater_is_better");
    if (greater == by.end() || !greater->is_boolean()) {
      return Corrupt(where + ": 'greater_is_better' should be true or false");
    }
    s.best_by->greater_is_better = greater->get<bool>();
    TEMPER_RETURN_IF_ERROR(read(by, "value", &s.best_by->value));
    TEMPER_RETURN_IF_ERROR(read(by, "best", &s.best_by->best));
  }
  TEMPER_ASSIGN_OR_RETURN(s.best_step, Count(json, "best_step", where));
  TEMPER_ASSIGN_OR_RETURN(s.data_fingerprint, Text(json, "data_fingerprint", where));
  if (json.contains("eval_fingerprint")) {
    TEMPER_ASSIGN_OR_RETURN(s.eval_fingerprint, Text(json, "eval_fingerprint", where));
  }
  TEMPER_ASSIGN_OR_RETURN(s.extra, Member(json, "extra", Json::value_t::object, where));
  return s;
}

std::string DescribeDifferences(const RunIdentity& saved, const RunIdentity& now) {
  std::string text;
  const auto add = [&](const std::string& what, const std::string& before, const std::string& after) {
    if (before != after) text += fmt::format("{}{} {} -> {}", text.empty() ? "" : "; ", what, before, after);
  };
  const auto compare = [&](const Json& before, const Json& after) {
    std::set<std::string> keys;
    for (const auto& [key, value] : before.items()) keys.insert(key);
    for (const auto& [key, value] : after.items()) keys.insert(key);
    for (const std::string& key : keys) {
      add(key, Dump(before.contains(key) ? before.at(key) : Json()),
          Dump(after.contains(key) ? after.at(key) : Json()));
    }
  };
  compare(saved.environment, now.environment);
  compare(saved.decisions, now.decisions);
  add("program", saved.program_hash, now.program_hash);
  if (saved.other_programs.empty() || now.other_programs.empty()) return text;
  std::map<std::string, std::string> names = saved.other_programs;
  names.insert(now.other_programs.begin(), now.other_programs.end());
  const auto hash = [](const RunIdentity& of, const std::string& name) {
    const auto at = of.other_programs.find(name);
    return at == of.other_programs.end() ? std::string("none") : at->second;
  };
  for (const auto& [name, unused] : names) add("program " + name, hash(saved, name), hash(now, name));
  return text;
}

const Manifest::Tensor* Manifest::Find(std::string_view name) const {
  const auto it = std::lower_bound(tensors.begin(), tensors.end(), name,
                                   [](const Tensor& t, std::string_view n) { return t.name < n; });
  return it != tensors.end() && it->name == name ? &*it : nullptr;
}

std::string FormatManifest(const Manifest& m) {
  std::string text = "{\n";
  const auto add = [&](const char* key, const std::string& value) {
    text += fmt::format(" \"{}\": {},\n", key, value);
  };
  add("format", Dump(kFormat));
  add("version", Dump(kCheckpointVersion));
  add("kind", Dump(std::string(ToString(m.kind))));
  if (m.optimizer != kUnsaidOptimizer) add("optimizer", Dump(m.optimizer));
  add("run", Dump(ToJson(m.state)));
  add("program", Dump(m.identity.program_hash));
  add("other_programs", Dump(Json(m.identity.other_programs)));
  add("environment", Dump(m.identity.environment));
  add("decisions", Dump(m.identity.decisions));
  add("files", Lines(m.files));
  add("tensors", Lines(m.tensors));
  const std::string checksum = ChecksumOfText(text);
  return text.append(kTailBegin).append(checksum).append(kTailEnd);
}

Result<Manifest> ParseManifest(std::string_view text, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  const auto format = json.is_object() ? json.find("format") : json.end();
  if (format == json.end() || *format != kFormat) return Corrupt(where + " is not the manifest of a Temper checkpoint");
  TEMPER_ASSIGN_OR_RETURN(const int64_t version, RequireInt(json, "version", where));
  if (version != kCheckpointVersion) {
    return Unsupported(
        fmt::format("{} has format version {}; this Temper reads version {}. Use the Temper that wrote it", where,
                    version, kCheckpointVersion));
  }
  TEMPER_RETURN_IF_ERROR(CheckOwnChecksum(text, where));
  Manifest m;
  TEMPER_ASSIGN_OR_RETURN(const std::string kind, Text(json, "kind", where));
  if (kind != "lora" && kind != "full") return Corrupt(fmt::format("{}: 'kind' is {}", where, Quoted(kind)));
  m.kind = kind == "lora" ? CheckpointKind::kLora : CheckpointKind::kFull;
  if (json.contains("optimizer")) {
    TEMPER_ASSIGN_OR_RETURN(m.optimizer, Text(json, "optimizer", where));
  }
  TEMPER_ASSIGN_OR_RETURN(const Json run, Member(json, "run", Json::value_t::object, where));
  TEMPER_ASSIGN_OR_RETURN(m.state, ParseRunState(run, where));
  TEMPER_ASSIGN_OR_RETURN(m.identity.program_hash, Text(json, "program", where));
  if (json.contains("other_programs")) {
    TEMPER_ASSIGN_OR_RETURN(const Json others, Member(json, "other_programs", Json::value_t::object, where));
    for (const auto& [name, unused] : others.items()) {
      TEMPER_ASSIGN_OR_RETURN(m.identity.other_programs[name], Text(others, name.c_str(), where));
    }
  }
  TEMPER_ASSIGN_OR_RETURN(m.identity.environment, Member(json, "environment", Json::value_t::object, where));
  TEMPER_ASSIGN_OR_RETURN(m.identity.decisions, Member(json, "decisions", Json::value_t::object, where));
  TEMPER_RETURN_IF_ERROR(ParseLists(json, where, &m.files, &m.tensors));
  TEMPER_RETURN_IF_ERROR(CheckTensorNames(m, where));
  return m;
}

std::string FormatFragment(const ManifestFragment& fragment) {
  return fmt::format("{{\n \"files\": {},\n \"tensors\": {}\n}}\n", Lines(fragment.files), Lines(fragment.tensors));
}

Result<ManifestFragment> ParseFragment(std::string_view text, const std::string& where) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, where));
  if (!json.is_object()) return Corrupt(where + ": should be a JSON object");
  ManifestFragment fragment;
  TEMPER_RETURN_IF_ERROR(ParseLists(json, where, &fragment.files, &fragment.tensors));
  return fragment;
}

Result<Manifest> ReadManifest(Env& env, const std::string& folder) {
  const std::string path = JoinPath(folder, kManifestFile);
  if (!env.IsFile(path)) {
    return NotFound(
        fmt::format("{} has no {}: it is not a checkpoint, or its save was interrupted", folder, kManifestFile));
  }
  TEMPER_ASSIGN_OR_RETURN(const std::string text, ReadTextFile(env, path, kMaxManifest));
  TEMPER_ASSIGN_OR_RETURN(Manifest m, ParseManifest(text, path));
  m.seconds = ReadSeconds(env, folder);
  return m;
}

}  // namespace temper
