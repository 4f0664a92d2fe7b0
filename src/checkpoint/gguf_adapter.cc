#include "checkpoint/gguf_adapter.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "checkpoint/checkpoint_folder.h"

namespace temper {
namespace {

Status CannotHold(const std::string& what) {
  return Unsupported(fmt::format(
      "the adapter has {}, which a GGUF adapter of llama.cpp cannot hold: leave --merge at true, which writes the "
      "merged model",
      what));
}

// A row of B, and what multiplies it.
struct RowOfB {
  int64_t row = 0;
  double scale = 1;
};

// The rows of B in the order of the tensor's.
std::vector<RowOfB> RowsOfB(const GgufTensor& tensor) {
  std::vector<RowOfB> stored, rows;
  for (const StoredWeight& part : tensor.parts) {
    for (const WeightSource::Box& box : part.source.boxes()) {
      for (int64_t i = 0; i < box.rows; ++i) stored.push_back({box.begin[0] + i, 1});
    }
  }
  for (const GgufRun& run : tensor.rows) {
    for (int64_t i = 0; i < run.count; ++i) {
      rows.push_back({stored[static_cast<size_t>(run.first + i)].row, run.scale});
    }
  }
  if (tensor.rows.empty()) rows = std::move(stored);
  const auto [head, rotary] = tensor.order;
  for (int64_t first = 0; head > 0 && first < std::ssize(rows); first += head) {
    const std::vector<RowOfB> halves(rows.begin() + first, rows.begin() + first + rotary);
    for (int64_t i = 0; i < rotary; ++i) {
      rows[static_cast<size_t>(first + i)] = halves[static_cast<size_t>(i / 2 + (i % 2) * (rotary / 2))];
    }
  }
  for (RowOfB& row : rows) row.scale *= tensor.scale;
  return rows;
}

class AdapterExporter {
 public:
  AdapterExporter(Env& env, const GgufExportSpec& spec) : env_(env), spec_(spec), type_(BlockType::kF32) {}

  Result<ExportReport> Run() {
    TEMPER_RETURN_IF_ERROR(CheckSpec());
    TEMPER_RETURN_IF_ERROR(FindTensors());
    const std::string& folder = spec_.source.output_dir;
    const std::string path = JoinPath(folder, spec_.file);
    if (env_.IsFile(folder)) return InvalidArgument(fmt::format("--output_dir {} is a file", folder));
    if (env_.IsFile(path) && !spec_.source.overwrite) {
      return InvalidArgument(fmt::format("{} is there already; give another --output_dir or --overwrite", path));
    }
    TEMPER_ASSIGN_OR_RETURN(const AdapterReader reader,
                            AdapterReader::Open(env_, spec_.source.source.adapter_folder, spec_.source.modules));
    TEMPER_RETURN_IF_ERROR(env_.CreateFolders(folder));
    std::vector<GgufDeclaration> declared;
    for (const auto& [tensor, module] : adapted_) {
      declared.push_back({tensor->name + ".lora_a", {module->r, module->in}, type_});
      declared.push_back({tensor->name + ".lora_b", {std::ssize(RowsOfB(*tensor)), module->r}, type_});
    }
    TEMPER_ASSIGN_OR_RETURN(GgufWriter writer, GgufWriter::Create(env_, path, Metadata(), declared));
    TEMPER_RETURN_IF_ERROR(CheckFreeSpace(env_, folder, writer.file_size()));
    for (const auto& [tensor, module] : adapted_) TEMPER_RETURN_IF_ERROR(Write(reader, *tensor, *module, writer));
    TEMPER_RETURN_IF_ERROR(writer.Finish());
    ExportReport report;
    report.files = {spec_.file};
    report.bytes = writer.file_size();
    report.tensors = std::ssize(declared);
    return report;
  }

 private:
  Status CheckSpec() {
    const ExportSpec& source = spec_.source;
    if (source.source.adapter_folder.empty()) {
      return InvalidArgument("--merge false is for an adapter: give its folder as the model, or with --adapter");
    }
    const std::pair<QuantMix, BlockType> types[] = {
        {QuantMix::kF32, BlockType::kF32}, {QuantMix::kF16, BlockType::kF16}, {QuantMix::kBF16, BlockType::kBF16}};
    const auto type = std::find_if(std::begin(types), std::end(types), [&](auto& t) { return t.first == spec_.mix; });
    if (type == std::end(types)) {
      return InvalidArgument(
          fmt::format("an adapter is written in f32, f16 or bf16: give one of them with --gguf_type, not {}; the base "
                      "file may have any type",
                      NameOf(spec_.mix)));
    }
    type_ = type->second;
    if (!source.copies.empty()) return CannotHold("modules that were trained in full (modules_to_save)");
    if (!source.rows.empty()) return CannotHold("rows of a table that were trained in full (trainable_token_indices)");
    if (source.modules.empty()) return CannotHold("no LoRA modules");
    for (const LoraModule& m : source.modules) {
      if (m.has_magnitudes) return CannotHold("magnitudes (DoRA)");
      if (m.matrices > 0) return CannotHold(fmt::format("matrices of experts ({})", m.path));
    }
    return OkStatus();
  }

  Status FindTensors() {
    std::map<std::string, const LoraModule*> module_of;  // by the tensor that it changes
    for (const LoraModule& m : spec_.source.modules) module_of[spec_.source.tensors_of.at(m.path).front()] = &m;
    std::set<const LoraModule*> found;
    for (const GgufTensor& tensor : spec_.model.tensors) {
      std::set<const LoraModule*> modules;
      for (const StoredWeight& part : tensor.parts) {
        for (const FileTensor& file : part.source.tensors()) {
          const auto module = module_of.find(file.name);
          modules.insert(module == module_of.end() ? nullptr : module->second);
        }
      }
      if (modules.empty() || *modules.rbegin() == nullptr) continue;
      const LoraModule* const module = *modules.rbegin();
      if (tensor.name == "token_embd.weight" || module->is_head != (tensor.name == "output.weight")) {
        return CannotHold(fmt::format("a change of {}, which is the embedding, too", module->path));
      }
      if (modules.size() > 1 || tensor.turned > 0) {
        return CannotHold(fmt::format("a change of {}, which llama.cpp's {} computes otherwise ({})", module->path,
                                      spec_.model.architecture, tensor.name));
      }
      adapted_.emplace_back(&tensor, module);
      found.insert(module);
    }
    for (const LoraModule& m : spec_.source.modules) {
      if (!found.contains(&m)) return CannotHold(fmt::format("a change of {}", m.path));
    }
    const LoraModule& first = *adapted_.front().second;
    alpha_ = first.scale != 0 ? AlphaOf(first) : 1;  // 0 would mean no alpha
    return OkStatus();
  }

  // llama.cpp multiplies B A by alpha / r: the scale of rsLoRA, too, is one of these.
  static double AlphaOf(const LoraModule& module) { return module.scale * static_cast<double>(module.r); }

  GgufMetadata Metadata() const {
    GgufMetadata all;
    all.Set("general.architecture", spec_.model.architecture);
    all.Set("general.type", std::string("adapter"));
    all.Set("general.file_type", FileTypeOf(spec_.mix));
    all.Add(spec_.metadata);
    all.Set("adapter.type", std::string("lora"));
    all.Set("adapter.lora.alpha", static_cast<float>(alpha_));
    return all;
  }

  Status Write(const AdapterReader& reader, const GgufTensor& tensor, const LoraModule& m, GgufWriter& writer) {
    const auto count = [](int64_t n) { return static_cast<size_t>(n); };
    std::vector<float> a(count(m.r * m.in)), b(count(m.out * m.r));
    TEMPER_RETURN_IF_ERROR(reader.Read(LoraAName(m.stored_path()), a));
    TEMPER_RETURN_IF_ERROR(reader.Read(LoraBName(m.stored_path()), b));
    if (!tensor.columns.empty()) {
      const std::vector<float> stored = a;
      auto to = a.begin();
      for (int64_t row = 0; row < m.r; ++row) {
        for (const GgufRun& run : tensor.columns) {
          to = std::copy_n(stored.begin() + row * m.in + run.first, run.count, to);
        }
      }
    }
    TEMPER_RETURN_IF_ERROR(Append(tensor.name + ".lora_a", a, writer));
    const double factor = AlphaOf(m) / alpha_;
    std::vector<float> rows;
    for (const RowOfB& row : RowsOfB(tensor)) {
      const double scale = row.scale * factor;
      for (int64_t i = 0; i < m.r; ++i) {
        const float x = b[count(row.row * m.r + i)];
        rows.push_back(scale == 1 ? x : static_cast<float>(x * scale));
      }
    }
    return Append(tensor.name + ".lora_b", rows, writer);
  }

  Status Append(const std::string& name, const std::vector<float>& numbers, GgufWriter& writer) const {
    constexpr float kF16Limit = 65520;  // rounds to infinity
    const float limit = type_ == BlockType::kF16 ? kF16Limit : INFINITY;
    for (const float x : numbers) {
      if (std::fabs(x) < limit) continue;
      return Numerical(
          fmt::format("{} holds {}, which {} cannot hold: use --gguf_type bf16 or f32", name, x, FormatOf(type_).name));
    }
    const BlockFormat& format = FormatOf(type_);
    const auto elements = static_cast<int64_t>(numbers.size());
    std::vector<std::byte> encoded(static_cast<size_t>(format.BytesOf(elements).v));
    format.encode(numbers.data(), encoded.data(), elements);
    return writer.Append(encoded);
  }

  Env& env_;
  const GgufExportSpec& spec_;
  BlockType type_;
  std::vector<std::pair<const GgufTensor*, const LoraModule*>> adapted_;
  double alpha_ = 0;
};

}  // namespace

Result<ExportReport> ExportGgufAdapter(Env& env, const GgufExportSpec& spec) {
  return AdapterExporter(env, spec).Run();
}

}  // namespace temper
