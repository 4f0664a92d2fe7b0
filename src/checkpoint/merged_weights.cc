#include "checkpoint/merged_weights.h"

#include <fmt/core.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "checkpoint/mean_rows.h"
#include "checkpoint/merge.h"
#include "checkpoint/row_norms.h"
#include "checkpoint/sliced_weights.h"
#include "format/conversion.h"
#include "format/quoted.h"
#include "format/transpose.h"

namespace temper {
namespace {

// The tensors that a module's adapter changes, by the name that each is written under.
void AddMerges(const LoraModule& m, const std::vector<std::string>& tensors,
               std::map<std::string, MergedWeights::Merge>* merges) {
  if (m.matrices == 0) {
    (*merges)[tensors.front()] = {.module = &m, .rows = m.out};
    return;
  }
  if (m.stacked) {
    (*merges)[tensors.front()] = {.module = &m, .rows = m.out, .matrix = MergedWeights::Merge::kAllMatrices};
    return;
  }
  TEMPER_CHECK(tensors.size() == m.parts.size() * static_cast<size_t>(m.matrices)) << m.path;
  auto name = tensors.begin();
  int64_t first = 0;
  for (const LoraModule::Part& part : m.parts) {
    for (int64_t matrix = 0; matrix < m.matrices; ++matrix) {
      (*merges)[*name++] = {.module = &m, .first = first, .rows = part.rows, .matrix = matrix};
    }
    first += part.rows;
  }
}

std::vector<float> Turned(const std::vector<float>& matrix, int64_t rows, int64_t columns) {
  std::vector<float> turned(matrix.size());
  Transpose(reinterpret_cast<const std::byte*>(matrix.data()), rows, columns, columns,
            reinterpret_cast<std::byte*>(turned.data()), rows, sizeof(float));
  return turned;
}

// Of the names of an untied head the one that is spelled as the table's in this folder.
const std::string& HeadBeside(const std::string& table, const std::vector<std::string>& heads) {
  const auto common = [&](const std::string& name) {
    return std::mismatch(name.begin(), name.end(), table.begin(), table.end()).first - name.begin();
  };
  return *std::max_element(heads.begin(), heads.end(),
                           [&](const auto& a, const auto& b) { return common(a) < common(b); });
}

}  // namespace

Result<MergedWeights> MergedWeights::Open(Env& env, const ExportSpec& spec, std::optional<DType> dtype) {
  TEMPER_ASSIGN_OR_RETURN(ModelWeights base, OpenModelWeights(env, spec.source.model_folder, spec.tensors));
  MergedWeights weights(spec, env, dtype, std::move(base));
  weights.notices_ = weights.base_.notices();
  std::vector<FileTensor> of_base = spec.tensors;
  if (spec.adds_head) {
    std::erase_if(of_base, [&](const FileTensor& tensor) { return tensor.name == spec.head_tensor; });
  }
  TEMPER_RETURN_IF_ERROR(CheckTensors(weights.base_, of_base));
  if (!spec.source.adapter_folder.empty()) {
    TEMPER_ASSIGN_OR_RETURN(weights.adapter_,
                            AdapterReader::Open(env, spec.source.adapter_folder, spec.modules, spec.copies, spec.rows));
  }
  TEMPER_RETURN_IF_ERROR(weights.Plan());
  return weights;
}

Status MergedWeights::Verify(const TransferCallback& progress) const {
  TEMPER_RETURN_IF_ERROR(VerifyWeights(*env_, spec_->source.model_folder, progress));
  const std::string& adapter = spec_->source.adapter_folder;
  return adapter.empty() ? OkStatus() : VerifyWeights(*env_, adapter);
}

const MergedWeights::Tensor* MergedWeights::FindWeight(const std::string& file_tensor) const {
  const auto found =
      std::find_if(tensors_.begin(), tensors_.end(), [&](const Tensor& t) { return t.weight == file_tensor; });
  return found == tensors_.end() ? nullptr : &*found;
}

Result<TensorType> MergedWeights::ExportedType(const ModelWeights::Entry& entry) const {
  auto type = entry.tensor->type();
  if (!type.ok()) return type.status().WithContext(entry.file->path());
  if (dtype_ && IsFloating(type->dtype)) type->dtype = *dtype_;
  return *type;
}

// A tensor that the model does not compute with.
Status MergedWeights::Keep(const ModelWeights::Entry& entry) {
  auto type = entry.tensor->type();
  if (!type.ok()) return type.status().WithContext(entry.file->path());
  tensors_.push_back({entry.tensor->name, "", entry, Merge(), *type});
  return OkStatus();
}

// `copy`: the adapter's own in the place of `from`, if it has one.
Status MergedWeights::Add(const std::string& name, const std::string& weight, const ModelWeights::Entry& from,
                          const ModelWeights::Entry& copy, const Merge& adapter, const TrainedRows* rows) {
  TEMPER_ASSIGN_OR_RETURN(const TensorType type, ExportedType(from));
  const bool merges = adapter.module != nullptr;
  if (merges && (type.shape != adapter.shape() || !IsFloating(type.dtype))) {
    return Corrupt(fmt::format("{}: tensor {} is {}; the adapter is for {}", from.file->path(), name,
                               from.tensor->ToString(), adapter.shape().ToString()));
  }
  tensors_.push_back({name, weight, copy.tensor != nullptr ? copy : from, adapter, type, rows});
  if (spec_->words > 0 && std::count(spec_->tables.begin(), spec_->tables.end(), weight) > 0) {
    Shape& shape = tensors_.back().type.shape;
    tensors_.back().made = spec_->words - shape[0];
    shape.set_dim(0, spec_->words);
  }
  merged_ += merges || copy.tensor != nullptr || rows != nullptr;
  return OkStatus();
}

// The adapter's head, in the type that the model's table of embeddings, its first tensor, is exported in.
Status MergedWeights::AddHead(const FileTensor& weight) {
  const ModelWeights::Entry head = CopyOf(weight.name, TrainedCopy::Readers::kHead);
  if (head.tensor == nullptr) {
    return InvalidArgument(fmt::format("{} has no {}, nor has an adapter: train a head first (temper train --task)",
                                       spec_->source.model_folder, weight.name));
  }
  TEMPER_ASSIGN_OR_RETURN(TensorType type, ExportedType(FindTensor(base_, spec_->tensors.front())));
  type.shape = weight.shape;
  tensors_.push_back({weight.name, weight.name, head, Merge(), type});
  ++merged_;
  return OkStatus();
}

// What the adapter has trained in full instead of a tensor of the model's, for those readers; without a tensor: it
// has not.
ModelWeights::Entry MergedWeights::CopyOf(const std::string& tensor, TrainedCopy::Readers readers) const {
  for (const TrainedCopy& copy : spec_->copies) {
    const bool all = copy.readers == TrainedCopy::Readers::kAll;
    if (copy.tensor == tensor && (all || copy.readers == readers)) return adapter_->Find(copy);
  }
  return {};
}

// The rows that the adapter has trained of a tensor of the model's, for those readers; nullptr: none.
const TrainedRows* MergedWeights::RowsOf(const std::string& tensor, TrainedCopy::Readers readers) const {
  for (const TrainedRows& rows : spec_->rows) {
    const bool all = rows.readers == TrainedCopy::Readers::kAll;
    if (rows.tensor == tensor && (all || rows.readers == readers)) return &rows;
  }
  return nullptr;
}

// Which tensors the export has, by name: its bytes depend on the model alone, not on how the base's files are laid
// out.
Status MergedWeights::Plan() {
  const std::vector<std::string>& head_names = spec_->tensors_of.at(spec_->head);
  const auto is_heads = [&](const std::string& name) {
    return std::find(head_names.begin(), head_names.end(), name) != head_names.end();
  };
  std::map<std::string, Merge> modules;  // by the name that the weight is written under
  for (const LoraModule& m : spec_->modules) AddMerges(m, spec_->tensors_of.at(m.path), &modules);
  std::set<std::string> taken;  // names in the base's files
  for (const FileTensor& weight : spec_->tensors) {
    if (spec_->adds_head && weight.name == spec_->head_tensor) {
      TEMPER_RETURN_IF_ERROR(AddHead(weight));
      continue;
    }
    const ModelWeights::Entry entry = FindTensor(base_, weight);
    taken.insert(weight.name);
    taken.insert(weight.aliases.begin(), weight.aliases.end());
    const auto own = modules.find(weight.name);
    const bool tied = weight.name == spec_->head_tensor && !is_heads(weight.name);
    // A tied table may be stored under the name of a head alone, which the model of classes has not; transformers
    // writes it under the embedding's.
    const std::string& stored = entry.tensor->name;
    const bool as_head = (tied && is_heads(stored)) || IsIgnored(stored, spec_->ignored);
    const std::string name = as_head ? weight.name : stored;
    using Readers = TrainedCopy::Readers;
    const ModelWeights::Entry table = CopyOf(weight.name, Readers::kEmbedding);
    const TrainedRows* const rows = RowsOf(weight.name, Readers::kEmbedding);
    TEMPER_RETURN_IF_ERROR(Add(name, weight.name, entry, table, own == modules.end() ? Merge() : own->second, rows));
    if (own != modules.end()) modules.erase(own);
    if (!tied) continue;
    const ModelWeights::Entry of_head = CopyOf(weight.name, Readers::kHead);
    const auto head = modules.find(head_names.front());
    const bool adapted = head != modules.end();
    const TrainedRows* const rows_of_head = RowsOf(weight.name, Readers::kHead);
    if (!adapted && table.tensor == of_head.tensor && rows == rows_of_head) continue;  // the same for both
    TEMPER_RETURN_IF_ERROR(Add(HeadBeside(name, head_names), head_names.front(), entry, of_head,
                               adapted ? head->second : Merge(), rows_of_head));
    if (adapted) modules.erase(head);
    untied_ = true;
    notices_.push_back(
        adapted || of_head.tensor != nullptr || rows_of_head != nullptr
            ? "the adapter changes the output head, which the model ties to its embeddings: the export has both, "
              "untied"
            : "the adapter changes the embeddings, to which the model ties its output head: the export has both, "
              "untied");
  }
  if (!modules.empty()) {
    return InvalidArgument(fmt::format("the adapter adapts {}, which is not a weight of the model in {}",
                                       modules.begin()->first, spec_->source.model_folder));
  }
  if (!spec_->keeps_others) {
    for (const std::string& name : UnusedTensors(base_, spec_->tensors, spec_->ignored)) {
      notices_.push_back(fmt::format("tensor {} is not of this architecture and is left out", Quoted(name)));
    }
  }
  int64_t kept = 0;
  for (const ModelWeights::Entry& e : base_.entries()) {
    if (!spec_->keeps_others || taken.contains(e.tensor->name)) continue;
    TEMPER_RETURN_IF_ERROR(Keep(e));
    ++kept;
  }
  if (spec_->keeps_others) {
    notices_.push_back(
        kept > 0 ? fmt::format("{} tensors that are not part of the text model are kept as they are", kept)
                 : fmt::format("{} holds the text model alone: the export lacks the rest of the multimodal model",
                               spec_->source.model_folder));
  }
  std::sort(tensors_.begin(), tensors_.end(), [](const Tensor& a, const Tensor& b) { return a.name < b.name; });
  return OkStatus();
}

// A [r, in] and B [rows, r]. A stack's adapter is read once for the matrices that follow each other.
Status MergedWeights::ReadAdapter(const Merge& merge, std::vector<float>* a, std::vector<float>* b) {
  const LoraModule& m = *merge.module;
  auto& [all_a, all_b] = stacks_[m.path];
  if (all_a.empty()) {
    all_a.resize(static_cast<size_t>(m.ranks() * m.in));
    all_b.resize(static_cast<size_t>(m.out * m.ranks()));
    TEMPER_RETURN_IF_ERROR(adapter_->Read(LoraAName(m.stored_path()), all_a));
    TEMPER_RETURN_IF_ERROR(adapter_->Read(LoraBName(m.stored_path()), all_b));
  }
  if (m.matrices == 0) {
    *a = std::move(all_a);
    *b = std::move(all_b);
    stacks_.erase(m.path);
    return OkStatus();
  }
  a->assign(all_a.begin() + merge.matrix * m.r * m.in, all_a.begin() + (merge.matrix + 1) * m.r * m.in);
  b->clear();
  for (int64_t row = merge.first; row < merge.first + merge.rows; ++row) {
    for (int64_t k = 0; k < m.r; ++k) {
      b->push_back(all_b[static_cast<size_t>(row * m.ranks() + k * m.matrices + merge.matrix)]);
    }
  }
  // Tensors come by name, so the stacks of one module are read in turn.
  constexpr size_t kStacksAtOnce = 2;
  for (auto it = stacks_.begin(); stacks_.size() > kStacksAtOnce;) {
    it = it->first == m.path ? std::next(it) : stacks_.erase(it);
  }
  return OkStatus();
}

Result<MergedWeights::Reader> MergedWeights::OpenReader(const Tensor& tensor) {
  Reader reader;
  reader.tensor_ = &tensor;
  reader.adapter_folder_ = &spec_->source.adapter_folder;
  const Shape& shape = tensor.type.shape;
  reader.columns_ = shape.rank() == 0 ? 1 : shape.elements() / std::max<int64_t>(1, shape[0]);
  if (tensor.made > 0) {
    const auto read = [&](int64_t first, int64_t rows, std::span<float> out) {
      return tensor.from.ReadElementsAs(first * reader.columns_, DType::kF32, std::as_writable_bytes(out));
    };
    TEMPER_ASSIGN_OR_RETURN(reader.made_, MeanRows(read, shape[0] - tensor.made, reader.columns_, tensor.made));
  }
  if (tensor.rows != nullptr) {
    reader.rows_.resize(static_cast<size_t>(tensor.rows->shape().elements()));
    TEMPER_RETURN_IF_ERROR(adapter_->ReadRows(*tensor.rows, reader.rows_));
  }
  if (tensor.adapter.module == nullptr) return reader;
  const LoraModule& m = *tensor.adapter.module;
  const auto read = [&](const Merge& merge, std::vector<float>* a, std::vector<float>* b) -> Status {
    TEMPER_RETURN_IF_ERROR(ReadAdapter(merge, a, b));
    if (!m.transposed) return OkStatus();
    std::swap(*a, *b);  // W^T + scale * A^T B^T: the same sums
    *a = Turned(*a, m.out, m.r);
    *b = Turned(*b, m.r, m.in);
    return OkStatus();
  };
  if (tensor.adapter.matrix != Merge::kAllMatrices) {
    TEMPER_RETURN_IF_ERROR(read(tensor.adapter, &reader.a_, &reader.b_));
    if (!m.has_magnitudes) return reader;
    std::vector<float> magnitudes(static_cast<size_t>(m.out));
    TEMPER_RETURN_IF_ERROR(adapter_->Read(LoraMagnitudeName(m.stored_path()), magnitudes));
    if (m.transposed) {
      TEMPER_RETURN_IF_ERROR(reader.FindFactors(magnitudes));
    } else {
      reader.magnitudes_ = std::move(magnitudes);
    }
    return reader;
  }
  Merge one = tensor.adapter;
  std::vector<float> a, b;
  for (one.matrix = 0; one.matrix < m.matrices; ++one.matrix) {
    TEMPER_RETURN_IF_ERROR(read(one, &a, &b));
    reader.a_.insert(reader.a_.end(), a.begin(), a.end());
    reader.b_.insert(reader.b_.end(), b.begin(), b.end());
  }
  return reader;
}

namespace {

// As when the model runs, a row of zeros stays one.
float FactorOf(float magnitude, double squares) {
  return squares > 0 ? static_cast<float>(static_cast<double>(magnitude) / std::sqrt(squares)) : 0;
}

}  // namespace

Status MergedWeights::Reader::FindFactors(const std::vector<float>& magnitudes) {
  constexpr int64_t kElementsAtOnce = 1 << 20;
  const int64_t rows = tensor_->type.shape[0], at_once = std::max<int64_t>(kElementsAtOnce / columns_, 1);
  std::vector<double> squares(magnitudes.size());
  std::vector<float> piece;
  std::vector<std::byte> staging(TensorFile::kStagingBytes);
  for (int64_t first = 0; first < rows; first += at_once) {
    const int64_t n = std::min(at_once, rows - first);
    piece.resize(static_cast<size_t>(n * columns_));
    TEMPER_RETURN_IF_ERROR(ReadMerged(first, n, piece, staging));
    for (size_t i = 0; i < piece.size(); ++i) {
      squares[i % squares.size()] += static_cast<double>(piece[i]) * static_cast<double>(piece[i]);
    }
  }
  for (size_t i = 0; i < magnitudes.size(); ++i) factors_.push_back(FactorOf(magnitudes[i], squares[i]));
  return OkStatus();
}

Status MergedWeights::Reader::Read(int64_t first, int64_t rows, std::span<float> out,
                                   std::span<std::byte> staging) const {
  TEMPER_RETURN_IF_ERROR(ReadMerged(first, rows, out, staging));
  std::vector<float> squares(magnitudes_.empty() ? 0 : static_cast<size_t>(rows));
  if (!squares.empty()) SquaresOfRows(out.data(), rows, columns_, squares.data());
  for (size_t r = 0; r < squares.size(); ++r) {
    const float factor = FactorOf(magnitudes_[static_cast<size_t>(first) + r], static_cast<double>(squares[r]));
    for (float& x : out.subspan(r * static_cast<size_t>(columns_), static_cast<size_t>(columns_))) x *= factor;
  }
  for (size_t i = 0; i < out.size() && !factors_.empty(); ++i) out[i] *= factors_[i % factors_.size()];
  return OkStatus();
}

// What is read of the files, before an adapter's product is added.
Status MergedWeights::Reader::ReadBase(int64_t first, int64_t rows, std::span<float> out,
                                       std::span<std::byte> staging) const {
  TEMPER_CHECK(std::ssize(out) == rows * columns_) << tensor_->name << ": " << rows << " rows";
  const int64_t stored = std::clamp<int64_t>(
      tensor_->type.shape.rank() == 0 ? rows : tensor_->type.shape[0] - tensor_->made - first, 0, rows);
  const auto of_file = out.first(static_cast<size_t>(stored * columns_));
  TEMPER_RETURN_IF_ERROR(
      tensor_->from.ReadElementsAs(first * columns_, DType::kF32, std::as_writable_bytes(of_file), staging));
  for (int64_t row = first + stored; row < first + rows; ++row) {
    const int64_t at = row - (tensor_->type.shape[0] - tensor_->made);
    std::copy_n(made_.begin() + at * columns_, columns_, out.begin() + (row - first) * columns_);
  }
  for (size_t i = 0; tensor_->rows != nullptr && i < tensor_->rows->rows.size(); ++i) {
    const int64_t row = tensor_->rows->rows[i] - first;
    if (row < 0 || row >= rows) continue;
    std::copy_n(rows_.begin() + static_cast<int64_t>(i) * columns_, columns_, out.begin() + row * columns_);
  }
  return OkStatus();
}

Status MergedWeights::Reader::ReadMerged(int64_t first, int64_t rows, std::span<float> out,
                                         std::span<std::byte> staging) const {
  TEMPER_RETURN_IF_ERROR(ReadBase(first, rows, out, staging));
  if (!tensor_->changed()) return OkStatus();
  if (tensor_->adapter.module == nullptr) return CheckFinite(first, out);
  const LoraModule& m = *tensor_->adapter.module;
  const auto scale = static_cast<float>(m.scale);
  if (tensor_->adapter.matrix == Merge::kAllMatrices) {  // a row is a matrix
    const Shape& shape = tensor_->type.shape;
    for (int64_t i = 0; i < rows; ++i) {
      MergeRows(out.data() + i * columns_, shape[1], shape[2], b_.data() + (first + i) * shape[1] * m.r,
                a_.data() + (first + i) * m.r * shape[2], m.r, scale);
    }
  } else {
    MergeRows(out.data(), rows, columns_, b_.data() + first * m.r, a_.data(), m.r, scale);
  }
  return CheckFinite(first, out);
}

Status MergedWeights::Reader::CheckFinite(int64_t first, std::span<const float> out) const {
  const auto bad = std::find_if(out.begin(), out.end(), [](float x) { return !std::isfinite(x); });
  if (bad == out.end()) return OkStatus();
  if (adapter_folder_->empty()) {
    return Numerical(fmt::format("tensor {} has {} at row {}: the model holds numbers that are not finite",
                                 tensor_->name, *bad, first + (bad - out.begin()) / columns_));
  }
  return Numerical(
      fmt::format("merging the adapter {} gives {} in {} at row {}: the adapter or the model holds "
                  "numbers that are not finite",
                  *adapter_folder_, *bad, tensor_->name, first + (bad - out.begin()) / columns_));
}

}  // namespace temper
