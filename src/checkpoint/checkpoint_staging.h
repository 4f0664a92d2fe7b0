// Suffixes of a checkpoint folder that is being written or deleted. Only a run's start reads such folders, to tidy up.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/manifest.h"
#include "format/safetensors_writer.h"

namespace temper {

inline constexpr std::string_view kStagingSuffix = ".tmp";      // being written
inline constexpr std::string_view kRetiredSuffix = ".old.tmp";  // being deleted

// The manifest's entry for a file of tensors that `writer` has written as `name`.
Manifest::File TensorFileEntry(const std::string& name, const SafetensorsWriter& writer);

}  // namespace temper
