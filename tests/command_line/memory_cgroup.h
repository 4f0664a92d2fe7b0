// A memory cgroup with a limit, for a process of a test: the kernel kills it if it takes more.
#pragma once

#include <fmt/core.h>
#include <signal.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <optional>
#include <string>

#include "base/units.h"
#include "temper_program.h"

namespace temper::program {

class MemoryCgroup {
 public:
  // nullopt if none can be made: no such controller, or no permission.
  static std::optional<MemoryCgroup> Make(Bytes limit) {
    namespace fs = std::filesystem;
    std::error_code error;
    static int made = 0;
    const std::string name = fmt::format("temper_test_{}_{}", getpid(), made++);
    for (const auto& [mounted, controller, file] :
         {std::tuple{"/sys/fs/cgroup/memory", ":memory:", "memory.limit_in_bytes"},
          std::tuple{"/sys/fs/cgroup", "0::", "memory.max"}}) {
      std::ifstream groups("/proc/self/cgroup");
      for (std::string line; std::getline(groups, line);) {
        const size_t at = line.find(controller);
        if (at == std::string::npos) continue;
        const std::string own = line.substr(at + std::string(controller).size());
        // Beside this process's group: in version 2 a group with processes cannot have subgroups.
        const fs::path folder = mounted + fs::path(own).parent_path().string() + "/" + name;
        if (!fs::create_directory(folder, error)) continue;
        MemoryCgroup group(folder.string());
        if (fs::exists(folder / file, error) && Write(folder / file, std::to_string(limit.v))) return group;
      }
    }
    return std::nullopt;
  }
  MemoryCgroup(MemoryCgroup&& other) noexcept : folder_(std::exchange(other.folder_, "")) {}
  ~MemoryCgroup() {
    std::error_code error;
    if (!folder_.empty()) std::filesystem::remove(folder_, error);  // like rmdir: its entries are not real files
  }

  // `command` as a process of the group.
  Arguments Inside(const Arguments& command) const {
    Arguments all = {"sh", "-c", "echo $$ > \"$0/cgroup.procs\" && exec \"$@\"", folder_};
    all.insert(all.end(), command.begin(), command.end());
    return all;
  }

 private:
  explicit MemoryCgroup(std::string folder) : folder_(std::move(folder)) {}
  static bool Write(const std::filesystem::path& file, const std::string& text) {
    std::ofstream out(file);
    return static_cast<bool>(out << text << std::flush);
  }

  std::string folder_;
};

}  // namespace temper::program
