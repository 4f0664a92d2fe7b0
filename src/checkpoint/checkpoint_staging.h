// A checkpoint folder on its way in or out: the names of what nothing reads but a run's start, which tidies up.
#pragma once

#include <string>
#include <string_view>

#include "checkpoint/manifest.h"
#include "format/safetensors_writer.h"

namespace temper {

inline constexpr std::string_view kStagingSuffix = ".tmp";      // being written
inline constexpr std::string_view kRetiredSuffix = ".old.tmp";  // being deleted

// The manifest's entry of a file of tensors that `writer` has written as `name`.
Manifest::File TensorFileEntry(const std::string& name, const SafetensorsWriter& writer);

}  // namespace temper
