#include "checkpoint/gguf_export.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <memory>

#include "base/for_each.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/merged_weights.h"
#include "format/gguf/block_tensor.h"
#include "format/quoted.h"
#include "format/safetensors.h"
#include "format/transpose.h"

namespace temper {
namespace {

constexpr int64_t kPieceElements = 1 << 20;   // of f32, per thread
constexpr uint32_t kQuantizationVersion = 2;  // of the layout of blocks: ggml.h, GGML_QNT_VERSION
constexpr float kF16Limit = 65520;            // rounds to infinity

// Rows of a GGUF tensor that follow each other in a tensor of the model's files.
struct Segment {
  std::shared_ptr<const MergedWeights::Reader> reader;
  int64_t rows = 0, first = 0;                       // first: its row in the file; of a transposed one its column
  std::shared_ptr<const std::vector<float>> turned;  // all rows of a matrix that the file has transposed
  const BlockTensor* blocks = nullptr;               // what the base's file has of it, where nothing changes it
};

// Reads the rows of one tensor as the GGUF file has them, in f32. Const methods may be called from any thread at once.
class RowReader {
 public:
  static Result<RowReader> Open(MergedWeights& weights, const GgufTensor& tensor) {
    RowReader reader(tensor);
    for (const StoredWeight& part : tensor.parts) TEMPER_RETURN_IF_ERROR(reader.AddPart(weights, part));
    return reader;
  }
  // All dims but the last; those of a vector are its elements.
  int64_t rows() const { return rows_; }
  int64_t columns() const { return columns_; }
  // Whether the base's file has the very blocks of this type.
  bool IsStoredAs(const BlockFormat& format) const {
    return !segments_.empty() && tensor_.added == 0 &&
           std::all_of(segments_.begin(), segments_.end(), [&](const Segment& segment) {
             return segment.blocks != nullptr && segment.blocks->blocks().id == format.id;
           });
  }
  // Pieces begin at multiples of this.
  int64_t row_step() const { return std::max<int64_t>(1, tensor_.order.head); }

  Status Read(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const {
    if (tensor_.parts.empty()) {
      std::copy_n(tensor_.numbers.begin() + first, rows, out.begin());
    } else {
      TEMPER_RETURN_IF_ERROR(ReadStored(first, rows, out, staging));
    }
    Reorder(rows, std::as_writable_bytes(out));
    if (tensor_.added != 0) {
      for (float& x : out) x += tensor_.added;
    }
    return OkStatus();
  }
  // Likewise the blocks. REQUIRES: IsStoredAs.
  Status ReadBlocks(int64_t first, int64_t rows, std::span<std::byte> out) const {
    const int64_t bytes = std::ssize(out) / rows;
    TEMPER_RETURN_IF_ERROR(ForSegments(first, rows, [&](const Segment& segment, int64_t row, int64_t n, int64_t to) {
      return segment.blocks->ReadBlocks(row, n,
                                        out.subspan(static_cast<size_t>(to * bytes), static_cast<size_t>(n * bytes)));
    }));
    Reorder(rows, out);
    return OkStatus();
  }

 private:
  explicit RowReader(const GgufTensor& tensor) : tensor_(tensor) {
    const std::vector<int64_t> dims = tensor.dims();
    columns_ = dims.size() == 1 ? 1 : dims.back();
    rows_ = 1;
    for (size_t d = 0; d < std::max<size_t>(1, dims.size() - 1); ++d) rows_ *= dims[d];
  }

  Status AddPart(MergedWeights& weights, const StoredWeight& part) {
    const WeightSource& source = part.source;
    std::vector<Segment> of_tensor(source.tensors().size());
    for (size_t i = 0; i < of_tensor.size(); ++i) {
      const FileTensor& file = source.tensors()[i];
      const MergedWeights::Tensor* const found = weights.FindWeight(file.name);
      TEMPER_CHECK(found != nullptr) << tensor_.name << ": no tensor " << file.name;
      TEMPER_ASSIGN_OR_RETURN(MergedWeights::Reader reader, weights.OpenReader(*found));
      of_tensor[i].reader = std::make_shared<const MergedWeights::Reader>(std::move(reader));
      if (found->from.quantised != nullptr && !found->changed()) {
        of_tensor[i].blocks = dynamic_cast<const BlockTensor*>(found->from.quantised);
      }
      if (source.transposed()) TEMPER_RETURN_IF_ERROR(Turn(file.shape, &of_tensor[i]));
    }
    for (const WeightSource::Box& box : source.boxes()) {
      const Shape& file = source.tensors()[box.tensor].shape;
      const bool stacked = file.rank() < part.shape.rank();
      Segment segment = of_tensor[box.tensor];
      segment.first = box.begin.rank() == 0 ? 0 : box.begin[0];
      segment.rows = stacked ? file[0] : box.rows;
      const int64_t columns = segment.turned ? file[0] : segment.reader->columns();
      TEMPER_CHECK(columns == columns_) << tensor_.name << ": rows of " << columns << " in " << columns_;
      segments_.push_back(std::move(segment));
    }
    return OkStatus();
  }

  // Reads a matrix [in, out] whole, as [out, in].
  static Status Turn(const Shape& shape, Segment* segment) {
    std::vector<float> all(static_cast<size_t>(shape.elements())), turned(all.size());
    TEMPER_RETURN_IF_ERROR(segment->reader->Read(0, shape[0], all, {}));
    Transpose(reinterpret_cast<const std::byte*>(all.data()), shape[0], shape[1], shape[1],
              reinterpret_cast<std::byte*>(turned.data()), shape[0], sizeof(float));
    segment->turned = std::make_shared<const std::vector<float>>(std::move(turned));
    return OkStatus();
  }

  // Calls read(segment, its row in the file, rows, where they go) for rows [first, first + rows).
  template <class ReadSegment>
  Status ForSegments(int64_t first, int64_t rows, const ReadSegment& read) const {
    int64_t begin = 0;  // of the segment, in rows of the tensor
    for (const Segment& segment : segments_) {
      const int64_t low = std::max(first, begin), high = std::min(first + rows, begin + segment.rows);
      if (low < high) TEMPER_RETURN_IF_ERROR(read(segment, segment.first + low - begin, high - low, low - first));
      begin += segment.rows;
    }
    return OkStatus();
  }

  Status ReadStored(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const {
    return ForSegments(first, rows, [&](const Segment& segment, int64_t row, int64_t n, int64_t to) -> Status {
      const auto part = out.subspan(static_cast<size_t>(to * columns_), static_cast<size_t>(n * columns_));
      if (!segment.turned) return segment.reader->Read(row, n, part, staging);
      std::copy_n(segment.turned->begin() + row * columns_, part.size(), part.begin());
      return OkStatus();
    });
  }

  // Rows i and i + rotary / 2 of each head become neighbours. REQUIRES: whole heads.
  void Reorder(int64_t rows, std::span<std::byte> out) const {
    const auto [head, rotary] = tensor_.order;
    if (head == 0 || rows == 0) return;
    const int64_t bytes = std::ssize(out) / rows;
    std::vector<std::byte> halves(static_cast<size_t>(rotary * bytes));
    for (int64_t row = 0; row < rows; row += head) {
      std::byte* const turned = out.data() + row * bytes;
      std::copy_n(turned, halves.size(), halves.data());
      for (int64_t i = 0; i < rotary; ++i) {
        const int64_t from = i / 2 + (i % 2) * (rotary / 2);
        std::copy_n(halves.data() + from * bytes, bytes, turned + i * bytes);
      }
    }
  }

  const GgufTensor& tensor_;
  int64_t rows_ = 0, columns_ = 0;
  std::vector<Segment> segments_;
};

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
    model.tensors.push_back({.name = model.head, .parts = {std::move(head)}});
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
      TEMPER_ASSIGN_OR_RETURN(const RowReader rows, RowReader::Open(weights, spec_.model.tensors[i]));
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

  Status Write(const RowReader& rows, const GgufDeclaration& declared, GgufWriter& writer) {
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
