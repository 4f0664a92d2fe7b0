// MergedWeights: the tensors of a model's files with its adapter merged into them: W + scale * B A in f32, with DoRA
// times m / ||W + scale * B A|| of each row; in tables of words the rows that it has trained. What an export of any
// format reads. Weights stream through in pieces of rows; memory is bounded by the adapters of some modules.
//
// Thread rule: one thread at a time; the readers that it opens are independent of it and of each other.
#pragma once

#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "checkpoint/export_spec.h"
#include "checkpoint/weight_checksums.h"

namespace temper {

class MergedWeights {
 public:
  // What is merged into a tensor: a module's adapter, or of a stack that of one matrix of one part; where files have a
  // stack in one tensor, that of all.
  struct Merge {
    const LoraModule* module = nullptr;  // null: none
    int64_t first = 0, rows = 0;         // rows of B
    int64_t matrix = 0;                  // of module->matrices; kAllMatrices

    static constexpr int64_t kAllMatrices = -1;
    // Of the weight in the model's files.
    Shape shape() const {
      const int64_t m = module->matrices;
      if (module->transposed) return matrix == kAllMatrices ? Shape{m, module->in, rows} : Shape{module->in, rows};
      return matrix == kAllMatrices ? Shape{m, rows, module->in} : Shape{rows, module->in};
    }
  };
  struct Tensor {
    std::string name;          // in a Hugging Face folder
    std::string weight;        // FileTensor::name; of a head that the adapter unties the head's; "": of no weight
    ModelWeights::Entry from;  // of the base, or the adapter's own
    Merge adapter;
    TensorType type;                    // in a Hugging Face folder
    const TrainedRows* rows = nullptr;  // that the adapter has in the place of some of its rows
    int64_t made = 0;                   // rows at its end that are in no file

    bool changed() const { return adapter.module != nullptr || rows != nullptr || made > 0; }
  };

  // Finds and checks all tensors; reads headers only. `spec` and `env` must outlive the result.
  static Result<MergedWeights> Open(Env& env, const ExportSpec& spec, std::optional<DType> dtype);
  // The checksums of all files, where they have any.
  Status Verify(const TransferCallback& progress) const;

  const ModelWeights& base() const { return base_; }
  const std::vector<Tensor>& tensors() const { return tensors_; }  // sorted by name
  // The tensor of a weight by the name in its source; nullptr where there is none.
  const Tensor* FindWeight(const std::string& file_tensor) const;
  bool untied() const { return untied_; }     // the adapter unties the head from the embedding
  int64_t merged() const { return merged_; }  // tensors that the adapter changes
  const std::vector<std::string>& notices() const { return notices_; }

  // Reads one tensor. Const methods may be called from any thread at once.
  class Reader {
   public:
    // Rows [first, first + rows) of dim 0, in f32. Errors: what cannot be read; numbers that are not finite where an
    // adapter is merged. `staging` as for TensorFile.
    Status Read(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;
    int64_t columns() const { return columns_; }  // elements of a row

   private:
    friend class MergedWeights;
    Status ReadMerged(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;
    // Of a transposed weight, whose norms take all of it.
    Status FindFactors(const std::vector<float>& magnitudes);
    Status ReadBase(int64_t first, int64_t rows, std::span<float> out, std::span<std::byte> staging) const;
    Status CheckFinite(int64_t first, std::span<const float> out) const;  // rows from `first` on
    const Tensor* tensor_ = nullptr;
    const std::string* adapter_folder_ = nullptr;
    int64_t columns_ = 0;
    // [r, in] and [rows, r]; of a transposed weight their transposes' exchange. Of a stack those of each matrix.
    std::vector<float> a_, b_;
    std::vector<float> rows_;  // of tensor_->rows
    std::vector<float> made_;  // tensor_->made rows
    // DoRA's magnitudes, one for each row; of a transposed weight what scales each column.
    std::vector<float> magnitudes_, factors_;
  };
  // `tensor` is one of tensors() and must outlive the reader.
  Result<Reader> OpenReader(const Tensor& tensor);

 private:
  MergedWeights(const ExportSpec& spec, Env& env, std::optional<DType> dtype, ModelWeights base)
      : spec_(&spec), env_(&env), dtype_(dtype), base_(std::move(base)) {}
  Status Plan();
  Result<TensorType> ExportedType(const ModelWeights::Entry& entry) const;
  ModelWeights::Entry CopyOf(const std::string& tensor, TrainedCopy::Readers readers) const;
  const TrainedRows* RowsOf(const std::string& tensor, TrainedCopy::Readers readers) const;
  Status Keep(const ModelWeights::Entry& entry);
  Status AddHead(const FileTensor& weight);
  Status Add(const std::string& name, const std::string& weight, const ModelWeights::Entry& from,
             const ModelWeights::Entry& copy, const Merge& adapter, const TrainedRows* rows);
  Status ReadAdapter(const Merge& merge, std::vector<float>* a, std::vector<float>* b);

  const ExportSpec* spec_;
  Env* env_;
  std::optional<DType> dtype_;  // of all floating tensors; as stored where absent
  ModelWeights base_;
  std::optional<AdapterReader> adapter_;
  std::vector<Tensor> tensors_;
  bool untied_ = false;
  int64_t merged_ = 0;
  std::vector<std::string> notices_;
  std::map<std::string, std::pair<std::vector<float>, std::vector<float>>> stacks_;  // A and B, by path
};

}  // namespace temper
