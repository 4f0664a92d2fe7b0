// GgufView: the tensors of a GGUF file under the names and in the order that a model's own files have. Which rows of
// which tensor make them is said by a map, a file of its own (kGgufMapFile) in the folder that stands for the GGUF
// file.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "format/gguf/gguf_file.h"
#include "format/gguf/gguf_tensor.h"
#include "format/tensor_file.h"

namespace temper {

inline constexpr char kGgufMapFile[] = "gguf_weights.json";

// Rows of a tensor of the GGUF file that follow each other in one of the model's.
struct GgufRows {
  std::string tensor;
  int64_t first = 0, rows = 0;
  RowOrder order;   // of `tensor`
  float added = 0;  // to each element in the GGUF file
};

struct GgufMap {
  std::string file;         // the GGUF file's path
  int64_t bytes = 0;        // its size when the map was made,
  int64_t modified_ns = 0;  // and when it had last been changed, since 1970
  struct Tensor {
    std::string name;
    std::vector<int64_t> dims;
    std::vector<GgufRows> parts;  // one after another they are its rows
    bool in_blocks = false;       // kept so in memory: a matrix of whole rows of blocks of one type
  };
  std::vector<Tensor> tensors;
  std::map<std::string, std::string> formats;  // by module, of those whose tensors are kept in blocks

  std::string ToJson() const;
  static Result<GgufMap> Read(Env& env, const std::string& path);
};

class GgufView final : public TensorFile {
 public:
  // `path`: of the map. kCorrupt where the GGUF file is not the one that the map was made of, or has not what it says.
  static Result<GgufView> Open(Env& env, const std::string& path);

  std::string_view kind() const override { return "GGUF"; }

  // The type of the blocks that `t`, one of tensors(), is kept in (GgufMap::Tensor::in_blocks); nullptr: it is not.
  const BlockDecoder* BlocksOf(const StoredTensor& t) const { return rows_[IndexOf(t)].blocks; }
  // The blocks of rows [first, first + rows). REQUIRES: it is kept in blocks; `out` has their size.
  Status ReadBlocks(const StoredTensor& t, int64_t first, int64_t rows, std::span<std::byte> out) const;

 private:
  struct Part {
    const StoredTensor* source = nullptr;
    int64_t begin = 0;  // row of the tensor
    GgufRows rows;
  };
  struct Rows {
    int64_t columns = 1;
    std::vector<Part> parts;
    const BlockDecoder* blocks = nullptr;
  };
  enum class As { kNumbers, kBlocks };

  GgufView(std::unique_ptr<RandomAccessFile> map, GgufFile file, SafetensorsHeader header, std::vector<Rows> rows);

  Status ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const override;
  bool IsInPlace(const StoredTensor&) const override { return false; }
  // Calls read(part, first, rows, out) for the parts of rows [first, first + rows), a row of `bytes`.
  template <class Read>
  static Status ForParts(const Rows& rows, int64_t first, int64_t count, int64_t bytes, std::span<std::byte> out,
                         const Read& read);
  // Rows [first, first + rows) of a part's rows, each of `bytes`, in the model's order.
  Status ReadRows(const Part& part, As as, int64_t bytes, int64_t first, int64_t rows, std::span<std::byte> out) const;
  Status ReadSource(const Part& part, As as, int64_t bytes, int64_t row, int64_t rows, std::span<std::byte> out) const;

  GgufFile file_;
  std::vector<Rows> rows_;  // of tensors()
};

}  // namespace temper
