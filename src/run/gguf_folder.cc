#include "run/gguf_folder.h"

#include <fmt/core.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "base/log.h"
#include "checkpoint/companion_files.h"
#include "data/tokenizer/gguf_tokenizer.h"
#include "format/checksum.h"
#include "format/gguf/gguf_view.h"
#include "format/json.h"
#include "format/quoted.h"
#include "model/families.h"
#include "model/gguf_config.h"
#include "model/quantisation_config.h"
#include "run/calibration.h"

namespace temper {
namespace {

// The tensors of the model's own files, made of rows of the GGUF file's.
class MapMaker {
 public:
  explicit MapMaker(const std::string& where) : where_(where) {}

  Result<std::vector<GgufMap::Tensor>> Run(const GgufModel& model) {
    for (const GgufTensor& tensor : model.tensors) {
      int64_t row = 0;
      for (const StoredWeight& part : tensor.parts) TEMPER_RETURN_IF_ERROR(AddPart(tensor, part, row));
    }
    std::vector<GgufMap::Tensor> all;
    for (const std::string& name : order_) {
      InFile& found = tensors_[name];
      GgufMap::Tensor out{.name = name, .dims = found.dims};
      int64_t next = 0;
      for (auto& [first, rows] : found.parts) {
        if (first != next) return Uncovered(name);
        next += rows.rows;
        out.parts.push_back(std::move(rows));
      }
      int64_t height = 1;
      for (size_t d = 0; d + 1 < std::max<size_t>(2, found.dims.size()); ++d) height *= found.dims[d];
      if (next != height) return Uncovered(name);
      all.push_back(std::move(out));
    }
    return all;
  }

 private:
  struct InFile {
    std::vector<int64_t> dims;
    std::map<int64_t, GgufRows> parts;  // by their first row in it
  };

  Status Uncovered(const std::string& name) const {
    return Unsupported(fmt::format("{}: it has not all rows of {}", where_, Quoted(name)));
  }

  // `row`: of `tensor`, where the part begins; moved on.
  Status AddPart(const GgufTensor& tensor, const StoredWeight& part, int64_t& row) {
    const WeightSource& source = part.source;
    if (source.transposed()) {
      return Unsupported(
          fmt::format("{}: this family's own files have {} transposed, which is not read from GGUF files", where_,
                      Quoted(tensor.name)));
    }
    for (const WeightSource::Box& box : source.boxes()) {
      const FileTensor& file = source.tensors()[box.tensor];
      const bool stacked = file.shape.rank() < part.shape.rank();
      if (file.shape.rank() > 2) {
        return Unsupported(
            fmt::format("{}: {} stacks matrices, which is not read from GGUF files", where_, Quoted(file.name)));
      }
      InFile& found = tensors_[file.name];
      if (found.dims.empty()) {
        order_.push_back(file.name);
        for (int d = 0; d < file.shape.rank(); ++d) found.dims.push_back(file.shape[d]);
      }
      const int64_t rows = stacked ? file.shape[0] : box.rows;
      const int64_t first = box.begin.rank() == 0 ? 0 : box.begin[0];
      // The head and the embedding may be one tensor there that is two here.
      found.parts.emplace(first, GgufRows{tensor.name, row, rows, tensor.order, tensor.added});
      row += rows;
    }
    return OkStatus();
  }

  const std::string& where_;
  std::vector<std::string> order_;
  std::map<std::string, InFile> tensors_;
};

// The type of blocks that all parts of a matrix have, as a format of tensor/format_list.inc; "" where it is not kept.
std::string BlocksOf(const GgufFile& file, const GgufMap::Tensor& tensor) {
  if (tensor.dims.size() != 2) return "";
  std::string type;
  for (const GgufRows& rows : tensor.parts) {
    const StoredTensor* const source = file.Find(rows.tensor);
    const BlockDecoder* const blocks = source == nullptr ? nullptr : file.BlocksOf(*source);
    if (blocks == nullptr || rows.added != 0 || (!type.empty() && type != blocks->name)) return "";
    type = blocks->name;
  }
  return ParseElementFormat(type).ok() ? type : "";
}

// Which tensors are read in the file's blocks, and which modules stay in them: those whose tensors all have blocks of
// one type.
void KeepBlocks(const GgufFile& file, const std::vector<LinearModule>& modules, GgufMap* map) {
  std::map<std::string, GgufMap::Tensor*> by_name;
  for (GgufMap::Tensor& tensor : map->tensors) {
    by_name[tensor.name] = &tensor;
    tensor.in_blocks = !BlocksOf(file, tensor).empty();
  }
  for (const LinearModule& module : modules) {
    if (module.is_head || (module.is_parameter && module.matrices == 0)) continue;
    std::vector<GgufMap::Tensor*> tensors;
    std::set<std::string> types;
    for (const std::string& name : module.tensors) {
      const auto found = by_name.find(name);
      if (found == by_name.end()) continue;  // a name of other versions
      tensors.push_back(found->second);
      types.insert(BlocksOf(file, *found->second));
    }
    if (types.size() == 1 && !types.begin()->empty()) {
      map->formats[NameInConfig(module)] = *types.begin();
    } else {
      for (GgufMap::Tensor* const tensor : tensors) tensor->in_blocks = false;
    }
  }
}

// Types of blocks and how many tensors have each, for people.
std::string TypesOf(const GgufFile& file) {
  std::map<std::string, int> counts;
  for (const StoredTensor& t : file.tensors()) {
    if (const BlockDecoder* const blocks = file.BlocksOf(t); blocks != nullptr) ++counts[std::string(blocks->name)];
  }
  std::string text;
  for (const auto& [name, count] : counts) {
    text += fmt::format("{}{} tensors in {}", text.empty() ? "" : ", ", count, name);
  }
  return text;
}

// Ranks and other runs may make the same folder at once: each writes one of its own, and the first gives it its name.
Status WriteFolder(Env& env, const std::string& folder, const std::map<std::string, std::string>& files) {
  const std::string map = JoinPath(folder, kGgufMapFile);
  const auto now = std::chrono::system_clock::now().time_since_epoch().count();
  static std::atomic<int> made = 0;
  const std::string own = fmt::format("{}.{}-{}-{}", folder, getpid(), now, made++);
  const auto write = [&]() -> Status {
    for (const auto& [name, text] : files) {
      TEMPER_RETURN_IF_ERROR(env.CreateFolders(FolderOf(JoinPath(own, name))));
      TEMPER_RETURN_IF_ERROR(WriteTextFileAtomically(env, JoinPath(own, name), text));
    }
    Status moved = env.Rename(own, folder);
    if (moved.ok() || env.IsFile(map)) return moved;
    TEMPER_RETURN_IF_ERROR(env.RemoveTree(folder));  // what somebody left of one: whole ones have their map
    return env.Rename(own, folder);
  };
  const Status written = write();
  if (written.ok()) return OkStatus();
  (void)env.RemoveTree(own);
  return env.IsFile(map) ? OkStatus() : written;
}

}  // namespace

Result<std::string> FolderOfGguf(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(const GgufFile file, GgufFile::Open(env, path));
  if (const std::string types = TypesOf(file); !types.empty()) {
    LogInfo(fmt::format("note        {}: {}: linear modules stay so in a frozen base, the rest is dequantised",
                        BaseName(path), types));
  }
  TEMPER_ASSIGN_OR_RETURN(const Json config, ConfigOfGguf(file));
  TEMPER_ASSIGN_OR_RETURN(const std::unique_ptr<Model> model, ModelFromConfig(config, path));
  TEMPER_ASSIGN_OR_RETURN(const GgufModel described, model->Gguf());
  TEMPER_RETURN_IF_ERROR(CheckGgufModel(file, described));
  GgufMap map{.file = AbsolutePath(path), .bytes = file.size().v, .modified_ns = file.version().modified_ns};
  TEMPER_ASSIGN_OR_RETURN(map.tensors, MapMaker(path).Run(described));
  KeepBlocks(file, model->modules(), &map);
  TEMPER_ASSIGN_OR_RETURN(auto files, TokenizerFilesOfGguf(file.keys(), path));
  files[kModelConfigFile] = DumpJson(config, 2) + "\n";
  files[kGgufMapFile] = map.ToJson();

  // Another version of the program may make other files of the same GGUF file: their texts name the folder, too.
  std::string all;
  for (const auto& [name, text] : files) all.append(name).append("\n").append(text);
  TEMPER_ASSIGN_OR_RETURN(const std::string calibration, CalibrationPath());
  const std::string folder =
      JoinPath(FolderOf(calibration),
               fmt::format("gguf/{}-{}", BaseName(path), ChecksumHex(std::as_bytes(std::span(std::string_view(all))))));
  if (env.IsFile(JoinPath(folder, kGgufMapFile))) return folder;
  const Status written = WriteFolder(env, folder, files);
  if (!written.ok()) {
    return written.WithContext(
        fmt::format("{}: its configuration and tokenizer are kept in {}: set XDG_CACHE_HOME to a "
                    "folder where files can be written",
                    path, folder));
  }
  return folder;
}

}  // namespace temper
