// StateDict: the tensors that the pickle of a torch.save file describes, by name, with the storages that hold their
// elements. What torch.save writes for tensors: torch/_tensor.py (_reduce_ex_internal), torch/_utils.py.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "format/safetensors_header.h"
#include "format/torch/pickle.h"

namespace temper {

struct StateDict {
  // A run of elements in the file, which tensors may share.
  struct Storage {
    std::string_view key;  // its name in the file; into the pickle's bytes
    int64_t elements = 0;
    int64_t element_size = 0;  // bytes
    int64_t bytes() const { return elements * element_size; }
  };
  // Its elements lie in its storage.
  struct Tensor {
    std::string_view name;  // into the pickle's bytes
    const StoredDType* dtype = nullptr;
    std::vector<int64_t> dims, strides;
    int64_t offset = 0;  // of element 0; like the strides in elements of this tensor
    size_t storage = 0;
  };

  // A pickle of a million values has fewer.
  static constexpr int64_t kMostTensors = 50'000;

  std::vector<Tensor> tensors;  // names are unique
  std::vector<Storage> storages;

  // The names that a pickle may refer to.
  static std::span<const PickleGlobal> Globals();
  // Of the dict that the pickle is, or that it has under "state_dict", "model", ...: values that are no tensors are
  // left out, and so are "module." and "_orig_mod." before all names. Errors: kCorrupt (tensors that contradict
  // themselves or their storages), kUnsupported (no such dict; tensors without storages).
  static Result<StateDict> Read(const Pickle& pickle, const std::string& path);
};

}  // namespace temper
