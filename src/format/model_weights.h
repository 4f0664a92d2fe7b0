// ModelWeights: the tensors of a Hugging Face model or adapter folder, whether they are stored in one file or in
// shards. It reads only headers; data is read tensor by tensor through TensorFile. A weight in a quantised format
// is one tensor here: what it dequantises to (format/quantised_tensor.h).
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/quantised_tensor.h"
#include "format/tensor_file.h"
#include "format/weight_source.h"

namespace temper {

enum class WeightsKind {
  kModel,    // model.safetensors, or model.safetensors.index.json and its shards
  kAdapter,  // adapter_model.safetensors
};

// The file of `folder` that its weights are read from, a file of tensors or an index of shards; empty: it has none.
// Where there are several, as transformers and PEFT choose: safetensors before what torch.save wrote
// (pytorch_model.bin, adapter_model.bin), one file before an index. Of a folder with none of their names, the one .pt
// or .pth file.
std::string WeightsFileIn(Env& env, const std::string& folder, WeightsKind kind = WeightsKind::kModel);

class ModelWeights {
 public:
  // A box of a tensor that is stored in pieces: tensor `stored` of `file`, which begins at `begin` of the whole.
  struct Piece {
    const TensorFile* file = nullptr;
    const StoredTensor* stored = nullptr;
    std::vector<int64_t> begin;
  };
  struct Entry {
    const TensorFile* file = nullptr;            // for a tensor in pieces: the first piece's
    const StoredTensor* tensor = nullptr;        // the whole tensor; for one in pieces begin and end give only its size
    const std::vector<Piece>* pieces = nullptr;  // null if the tensor is stored whole in `file`
    bool pieces_in_order = false;                // sorted by begin[0]; a piece ends where the next begins
    const QuantisedTensor* quantised = nullptr;  // set if it is stored so; `tensor` is then what it dequantises to

    // Its offset in `file`: readers that follow the disk's order sort by it.
    int64_t begin() const {
      if (quantised != nullptr) return quantised->parts().front().tensor->begin;
      return pieces == nullptr ? tensor->begin : pieces->front().stored->begin;
    }
    // As TensorFile::ReadElementsAs, however the elements are stored; reads only the pieces it needs.
    Status ReadElementsAs(int64_t first, DType target, std::span<std::byte> out,
                          std::span<std::byte> staging = {}) const;
  };

  // A tensor given as a list of pieces; `file` is an index into the list of files.
  struct PieceList {
    std::string name;
    TensorType type;
    struct Item {
      size_t file = 0;
      std::string stored_as;
      Shape begin;
    };
    std::vector<Item> items;
  };

  // `path`: a folder (WeightsFileIn), a file of tensors, or an index of shards. Shards count, not what the index says
  // of their tensors. Errors: kNotFound (no weights, missing shards: all are named), kCorrupt (a damaged index or
  // shard), kUnsupported (a file of another kind).
  static Result<ModelWeights> Open(Env& env, const std::string& path, WeightsKind kind = WeightsKind::kModel);

  // Tensors that are stored in pieces in `files`, whose other content is ignored. REQUIRES: the pieces of a tensor are
  // disjoint and cover it. kCorrupt if a file does not have a piece of that type.
  static Result<ModelWeights> OfPieces(Env& env, const std::string& path, const std::vector<std::string>& files,
                                       std::span<const PieceList> tensors);

  // Makes stacks of those of `tensors` whose matrices this folder has in tensors of their own
  // (FileTensor::matrices_as): such a stack is a tensor in pieces from then on. Errors: kCorrupt where some of its
  // matrices are missing or of another shape, kUnsupported where they are of several types or formats.
  Status StackMatrices(std::span<const FileTensor> tensors);

  const std::string& path() const { return path_; }  // as given to Open
  // What a user should hear of the files once, as warnings.
  const std::vector<std::string>& notices() const { return notices_; }
  const std::vector<std::unique_ptr<TensorFile>>& files() const { return files_; }
  const std::vector<Entry>& entries() const { return entries_; }  // sorted by name; names are unique
  Bytes bytes() const;                                            // of all tensors

  Entry Find(std::string_view name) const;  // null pointers where absent
  Result<Entry> Require(std::string_view name) const;

  // The shard that the index assigns a tensor to, whether or not it is there; empty if it does not list it.
  std::string ListedIn(const std::string& name) const;

  // Distinguishes these weights from others without reading them all: names, types and sizes of all tensors, and the
  // first elements of some.
  Result<std::string> Digest() const;

  // The value of `key` in the first file's __metadata__ that has it; empty if none has.
  std::string Metadata(const std::string& key) const;

 private:
  explicit ModelWeights(std::string path) : path_(std::move(path)) {}

  Status OpenFile(Env& env, const std::string& path);
  Status OpenShards(Env& env, const std::string& folder, const std::string& index_path);
  Status Collect();
  Status CollectQuantised();

  std::string path_;
  std::vector<std::unique_ptr<TensorFile>> files_;  // pointers: entries point into them
  // Pieces of tensors; entries point at them.
  struct InPieces {
    StoredTensor whole;
    std::vector<Piece> pieces;
    std::vector<std::unique_ptr<StoredTensor>> matrices;  // pieces of a stack, as boxes of it
  };
  std::vector<std::unique_ptr<InPieces>> in_pieces_;
  std::vector<std::unique_ptr<QuantisedTensor>> quantised_;  // entries point at them
  std::vector<Entry> entries_;
  std::map<std::string, std::string> listed_;  // by the index
  std::vector<std::string> notices_;
};

}  // namespace temper
