// OpenTensorFile: a file of tensors of any kind that is read, told by its first bytes, whatever its name.
#pragma once

#include <memory>
#include <string>

#include "format/tensor_file.h"

namespace temper {

// Errors as of SafetensorsFile::Open, TorchFile::Open and GgufFile::Open. `env` need not outlive the result.
Result<std::unique_ptr<TensorFile>> OpenTensorFile(Env& env, const std::string& path);

}  // namespace temper
