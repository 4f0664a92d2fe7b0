// TorchFile: the tensors of a state dict that torch.save wrote (pytorch_model.bin, .pt, .pth), read where they stand.
// Unpickling would run whatever code a file holds: here its pickle is data (format/torch/pickle.h), of which only
// tensors and dicts of them are known. Both forms are read: the zip archive of PyTorch from 1.6 on, whose entries must
// be stored as they are, and the pickles one after another of before.
//
// Tensors may share elements, and may hold them in another order than row-major: reading puts them in order. Sums of
// contents (the archive's CRCs) are checked of the pickle alone, not of tensors, as PyTorch does.
//
// Thread rule: const methods may be called from any thread at once.
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "format/tensor_file.h"
#include "format/torch/state_dict.h"

namespace temper {

class TorchFile final : public TensorFile {
 public:
  static constexpr size_t kMagicBytes = 9;
  // Longest pickle that is read: 40,000 tensors take 10 MB.
  static constexpr int64_t kMostPickle = 16 << 20;

  // Whether a file that begins so is a zip archive or a pickle.
  static bool IsMagic(std::span<const std::byte, kMagicBytes> head);

  // Errors: kNotFound; kCorrupt (truncated, contradictory, ...); kUnsupported (names in the pickle that are not known,
  // other contents than a state dict, big-endian numbers, TorchScript). `env` need not outlive the result.
  static Result<TorchFile> Open(Env& env, const std::string& path);

  std::string_view kind() const override { return "PyTorch"; }

 private:
  // Tensors of `dict`; storage i begins at begins[i] of the file.
  TorchFile(std::unique_ptr<RandomAccessFile> file, SafetensorsHeader header,
            std::vector<std::vector<int64_t>> strides);
  static Result<TorchFile> Assemble(std::unique_ptr<RandomAccessFile> file, const StateDict& dict,
                                    std::span<const int64_t> begins);
  static Result<TorchFile> OpenArchive(std::unique_ptr<RandomAccessFile> file);
  static Result<TorchFile> OpenSequence(std::unique_ptr<RandomAccessFile> file);

  Status ReadBytes(const StoredTensor& t, int64_t begin, std::span<std::byte> out) const override;
  bool IsInPlace(const StoredTensor& t) const override;

  std::vector<std::vector<int64_t>> strides_;  // of tensors(); empty: row-major
};

}  // namespace temper
