#include "checkpoint/gguf_export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>

#include "base/for_each.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/gguf_rows.h"
#include "checkpoint/merged_weights.h"
#include "format/gguf/block_tensor.h"
#include "format/quoted.h"
#include "format/safetensors.h"

namespace temper {
namespace {

constexpr int64_t kPieceElements = 1 << 20;   // of f32, per thread
constexpr uint32_t kQuantizationVersion = 2;  // of the layout of blocks: ggml.h, GGML_QNT_VERSION
constexpr float kF16Limit = 65520;            // rounds to infinity

class GgufExporter {
 public:
  GgufExporter(Env& env, GgufExportSpec spec, const TransferCallback& progress, const TransferCallback& verifying)
      : env_(env), spec_(std::move(spec)), progress_(progress), verifying_(verifying) {}

  Result<ExportReport> Run() {
    TEMPER_RETURN_IF_ERROR(CheckOutput());
    TEMPER_ASSIGN_OR_RETURN(MergedWeights weights, MergedWeights::Open(env_, spec_.source, std::nullopt));
    report_.merged = weights.merged();
    report_.notices = weights.base().notices();
    report_.notices.insert(report_.notices.end(), spec_.model.notices.begin(), spec_.model.notices.end());
    NoteLeftOut(weights);
    if (weights.untied()) TEMPER_RETURN_IF_ERROR(AddHead());
    Declare();
    TEMPER_RETURN_IF_ERROR(weights.Verify(verifying_));
    const std::string& folder = spec_.source.output_dir;
    TEMPER_RETURN_IF_ERROR(ReadNumbers(weights));
    TEMPER_RETURN_IF_ERROR(env_.CreateFolders(folder));
    TEMPER_ASSIGN_OR_RETURN(GgufWriter writer,
                            GgufWriter::Create(env_, JoinPath(folder, spec_.file), Metadata(), declared_));
    TEMPER_RETURN_IF_ERROR(CheckFreeSpace(env_, folder, writer.file_size()));
    TEMPER_RETURN_IF_ERROR(WriteTensors(weights, writer));
    TEMPER_RETURN_IF_ERROR(writer.Finish());
    report_.files = {spec_.file};
    report_.bytes = writer.file_size();
    report_.tensors = std::ssize(declared_);
    if (kept_ > 0) {
      report_.notices.push_back(
          fmt::format("{} tensors have the blocks of the base's file, which nothing changes", kept_));
    }
    return std::move(report_);
  }

 private:
  void NoteLeftOut(const MergedWeights& weights) {
    const auto others = std::count_if(weights.tensors().begin(), weights.tensors().end(),
                                      [](const auto& t) { return t.weight.empty(); });
    if (others > 0) {
      report_.notices.push_back(fmt::format("{} tensors that are not part of the text model are left out", others));
    }
    if (spec_.source.keeps_others) return;
    for (const std::string& name : UnusedTensors(weights.base(), spec_.source.tensors, spec_.source.ignored)) {
      report_.notices.push_back(fmt::format("tensor {} is not of this architecture and is left out", Quoted(name)));
    }
  }

  Status CheckOutput() const {
    const std::string& folder = spec_.source.output_dir;
    if (env_.IsFile(folder)) return InvalidArgument(fmt::format("--output_dir {} is a file", folder));
    const std::string path = JoinPath(folder, spec_.file);
    if (!env_.IsFile(path) || spec_.source.overwrite) return OkStatus();
    return InvalidArgument(fmt::format("{} is there already; give another --output_dir or --overwrite", path));
  }

  // The head that the adapter makes of the embedding.
  Status AddHead() {
    GgufModel& model = spec_.model;
    if (model.head.empty()) {
      return Unsupported(
          fmt::format("the adapter changes the output head or the embeddings, which llama.cpp's architecture {} ties "
                      "to each other. "
                      "Export a Hugging Face folder instead, with --format hf",
                      model.architecture));
    }
    std::erase_if(model.tensors, [&](const GgufTensor& tensor) { return tensor.name == model.head; });
    const auto table = std::find_if(model.tensors.begin(), model.tensors.end(),
                                    [](const GgufTensor& tensor) { return tensor.name == "token_embd.weight"; });
    TEMPER_CHECK(table != model.tensors.end()) << model.architecture << " has no embedding";
    const std::string& name = spec_.source.tensors_of.at(spec_.source.head).front();
    StoredWeight head = table->parts.front();
    head.source = WeightSource(FileTensor{.name = name, .aliases = {}, .shape = head.shape});
    model.tensors.push_back({.name = model.head, .parts = {std::move(head)}, .scale = model.head_scale});
    report_.notices.push_back(
        "the adapter changes the output head or the embeddings, which the model ties: the file has "
        "both");
    return OkStatus();
  }

  void Declare() {
    for (const GgufTensor& tensor : spec_.model.tensors) declared_.push_back({tensor.name, tensor.dims()});
    const GgufModel& m = spec_.model;
    const std::vector<std::string> lines = ChooseTypes(spec_.mix,
                                                       {.architecture = m.architecture,
                                                        .blocks = m.blocks,
                                                        .heads = m.heads,
                                                        .kv_heads = m.kv_heads,
                                                        .experts = m.experts},
                                                       declared_);
    report_.notices.insert(report_.notices.end(), lines.begin(), lines.end());
  }

  // Keys that llama.cpp reads where the model has tensors of one number.
  Status ReadNumbers(MergedWeights& weights) {
    for (const GgufNumbers& numbers : spec_.model.numbers) {
      std::vector<float> values;
      for (const StoredWeight& part : numbers.parts) {
        const MergedWeights::Tensor* const found = weights.FindWeight(part.source.tensors().front().name);
        TEMPER_CHECK(found != nullptr) << numbers.key << ": no tensor " << part.name;
        TEMPER_ASSIGN_OR_RETURN(const MergedWeights::Reader reader, weights.OpenReader(*found));
        TEMPER_RETURN_IF_ERROR(reader.Read(0, 1, std::span(&values.emplace_back(), 1), {}));
      }
      spec_.model.metadata.Set(numbers.key, std::move(values));
    }
    return OkStatus();
  }

  GgufMetadata Metadata() const {
    GgufMetadata all;
    all.Set("general.architecture", spec_.model.architecture);
    all.Set("general.type", std::string("model"));
    all.Set("general.file_type", FileTypeOf(spec_.mix));
    all.Set("general.quantization_version", kQuantizationVersion);
    all.Add(spec_.model.metadata);
    all.Add(spec_.metadata);
    return all;
  }

  Status WriteTensors(MergedWeights& weights, GgufWriter& writer) {
    Bytes done{}, total{};
    for (const GgufDeclaration& declared : declared_) total += declared.bytes();
    for (size_t i = 0; i < declared_.size(); ++i) {
      TEMPER_ASSIGN_OR_RETURN(const GgufRowReader rows, GgufRowReader::Open(weights, spec_.model.tensors[i]));
      TEMPER_RETURN_IF_ERROR(Write(rows, declared_[i], writer));
      done += declared_[i].bytes();
      if (progress_) progress_(done, total);
    }
    return OkStatus();
  }

  // A piece and what a thread needs for it.
  struct Piece {
    std::vector<float> numbers;
    std::vector<std::byte> encoded, staging = std::vector<std::byte>(TensorFile::kStagingBytes);
    Status status;
  };

  Status Write(const GgufRowReader& rows, const GgufDeclaration& declared, GgufWriter& writer) {
    const BlockFormat& format = FormatOf(declared.type);
    const int64_t step = rows.row_step(), columns = rows.columns();
    const int64_t per_piece = std::max<int64_t>(1, kPieceElements / std::max<int64_t>(1, step * columns)) * step;
    const int64_t pieces = (rows.rows() + per_piece - 1) / per_piece;
    pieces_.resize(static_cast<size_t>(spec_.threads));
    const bool stored = rows.IsStoredAs(format);
    kept_ += stored;
    for (int64_t first = 0; first < pieces; first += spec_.threads) {
      const int64_t now = std::min<int64_t>(spec_.threads, pieces - first);
      ForEach(now, spec_.threads, [&](int64_t i) {
        Piece& piece = pieces_[static_cast<size_t>(i)];
        const int64_t row = (first + i) * per_piece, count = std::min(per_piece, rows.rows() - row);
        if (stored) {
          piece.encoded.resize(static_cast<size_t>(format.BytesOf(count * columns).v));
          piece.status = rows.ReadBlocks(row, count, piece.encoded);
          return;
        }
        piece.numbers.resize(static_cast<size_t>(count * columns));
        piece.encoded.resize(static_cast<size_t>(format.BytesOf(count * columns).v));
        piece.status = rows.Read(row, count, piece.numbers, piece.staging);
        if (piece.status.ok()) piece.status = CheckNumbers(piece.numbers, declared, row, columns);
        if (piece.status.ok()) format.encode(piece.numbers.data(), piece.encoded.data(), count * columns);
      });
      for (int64_t i = 0; i < now; ++i) {
        const Piece& piece = pieces_[static_cast<size_t>(i)];
        TEMPER_RETURN_IF_ERROR(piece.status);
        TEMPER_RETURN_IF_ERROR(writer.Append(piece.encoded));
      }
    }
    return OkStatus();
  }

  // f32 and bf16 hold whatever the model has.
  static Status CheckNumbers(std::span<const float> x, const GgufDeclaration& declared, int64_t row, int64_t columns) {
    const bool f16 = declared.type == BlockType::kF16;
    if (!f16 && !FormatOf(declared.type).quantised()) return OkStatus();
    const float limit = f16 ? kF16Limit : INFINITY;
    const auto bad = std::find_if(x.begin(), x.end(), [&](float n) { return !(std::fabs(n) < limit); });
    if (bad == x.end()) return OkStatus();
    return Numerical(fmt::format("{} holds {} in row {}, which {} cannot hold: use --gguf_type bf16 or f32",
                                 declared.name, *bad, row + (bad - x.begin()) / columns, FormatOf(declared.type).name));
  }

  Env& env_;
  GgufExportSpec spec_;
  const TransferCallback &progress_, &verifying_;
  std::vector<GgufDeclaration> declared_;
  std::vector<Piece> pieces_;
  int64_t kept_ = 0;  // tensors whose blocks are the base's
  ExportReport report_;
};

}  // namespace

Result<ExportReport> ExportGguf(Env& env, GgufExportSpec spec, const TransferCallback& progress,
                                const TransferCallback& verifying) {
  TEMPER_CHECK(spec.threads >= 1) << spec.threads;
  return GgufExporter(env, std::move(spec), progress, verifying).Run();
}

}  // namespace temper
