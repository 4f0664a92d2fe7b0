#include "format/open_tensor_file.h"

#include <algorithm>
#include <array>

#include "format/safetensors.h"
#include "format/torch/torch_file.h"

namespace temper {

Result<std::unique_ptr<TensorFile>> OpenTensorFile(Env& env, const std::string& path) {
  std::array<std::byte, TorchFile::kMagicBytes> magic{};
  {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(path));
    if (file->size().v >= std::ssize(magic)) TEMPER_RETURN_IF_ERROR(file->ReadAt(0, magic));
  }
  if (TorchFile::IsMagic(magic)) {
    TEMPER_ASSIGN_OR_RETURN(TorchFile file, TorchFile::Open(env, path));
    return std::unique_ptr<TensorFile>(std::make_unique<TorchFile>(std::move(file)));
  }
  TEMPER_ASSIGN_OR_RETURN(SafetensorsFile file, SafetensorsFile::Open(env, path));
  return std::unique_ptr<TensorFile>(std::make_unique<SafetensorsFile>(std::move(file)));
}

}  // namespace temper
