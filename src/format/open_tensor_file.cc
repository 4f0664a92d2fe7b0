#include "format/open_tensor_file.h"

#include <fmt/core.h>

#include <algorithm>
#include <array>

#include "format/gguf/gguf_file.h"
#include "format/gguf/gguf_view.h"
#include "format/safetensors.h"
#include "format/torch/torch_file.h"

namespace temper {

Result<std::unique_ptr<TensorFile>> OpenTensorFile(Env& env, const std::string& path) {
  std::array<std::byte, TorchFile::kMagicBytes> magic{};
  {
    TEMPER_ASSIGN_OR_RETURN(const auto file, env.OpenForRead(path));
    if (file->size().v >= std::ssize(magic)) TEMPER_RETURN_IF_ERROR(file->ReadAt(0, magic));
  }
  if (BaseName(path) == kGgufMapFile) {
    TEMPER_ASSIGN_OR_RETURN(GgufView file, GgufView::Open(env, path));
    return std::unique_ptr<TensorFile>(std::make_unique<GgufView>(std::move(file)));
  }
  if (IsGgufMagic(std::span(magic).first<4>())) {
    TEMPER_ASSIGN_OR_RETURN(GgufFile file, GgufFile::Open(env, path));
    return std::unique_ptr<TensorFile>(std::make_unique<GgufFile>(std::move(file)));
  }
  if (TorchFile::IsMagic(magic)) {
    TEMPER_ASSIGN_OR_RETURN(TorchFile file, TorchFile::Open(env, path));
    return std::unique_ptr<TensorFile>(std::make_unique<TorchFile>(std::move(file)));
  }
  Result<SafetensorsFile> file = SafetensorsFile::Open(env, path);
  const bool of_torch = path.ends_with(".bin") || path.ends_with(".pt") || path.ends_with(".pth");
  if (of_torch && file.status().code() == StatusCode::kCorrupt) {
    return Corrupt(
        fmt::format("{} begins neither as torch.save writes files nor as safetensors does: get it again", path));
  }
  TEMPER_RETURN_IF_ERROR(file.status());
  return std::unique_ptr<TensorFile>(std::make_unique<SafetensorsFile>(*std::move(file)));
}

}  // namespace temper
