// Names of folders that are on their way in or out. Nothing reads them but a run's start, which tidies up.
#pragma once

#include <string_view>

namespace temper {

inline constexpr std::string_view kStagingSuffix = ".tmp";      // being written
inline constexpr std::string_view kRetiredSuffix = ".old.tmp";  // being deleted

}  // namespace temper
