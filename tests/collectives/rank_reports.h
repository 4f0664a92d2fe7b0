// The reports of ranks that are processes: a folder for their
// files, and the errors that all of them got after a mishap.
#pragma once

#include <gtest/gtest.h>

#include <cctype>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>
#include <system_error>
#include <thread>

#include "base/scratch_folder.h"

namespace temper::collectives {

class RankProcesses : public testing::Test {
 protected:
  // Ended ranks leave nothing behind. Other programs use this folder, too: files that one still has mapped are theirs,
  // and new ones may be mapped soon.
  void ExpectNothingInDevShm() const {
    std::set<std::string> left;
    for (int look = 0; look < 20; ++look) {
      left.clear();
      for (const std::string& name : InDevShm()) {
        if (!shared_before_.contains(name) && !IsMapped(name)) left.insert(name);
      }
      if (left.empty()) return;
      std::this_thread::sleep_for(std::chrono::milliseconds(100));
    }
    EXPECT_EQ(left, std::set<std::string>()) << "files were left behind";
  }

  std::string out() const { return folder_ / "out"; }
  std::string Written(int rank) const {
    std::ifstream in(out() + "." + std::to_string(rank));
    std::stringstream text;
    text << in.rdbuf();
    return in ? text.str() : "wrote nothing";
  }
  void ForgetWritten() const {
    std::filesystem::remove_all(folder_.path());
    std::filesystem::create_directory(folder_.path());
  }

  // The reports of the ranks other than the culprit.
  struct Heard {
    std::set<std::string> messages;
    double slowest = 0;  // seconds
    int reporters = 0;
    std::string message() const { return messages.empty() ? "" : *messages.begin(); }
  };
  Heard HeardBy(int ranks, int culprit) const {
    Heard heard;
    for (int r = 0; r < ranks; ++r) {
      if (r == culprit) continue;
      std::istringstream in(Written(r));
      std::string seconds, reports, message;
      std::getline(in, seconds);
      std::getline(in, reports);
      std::getline(in, message);
      heard.slowest = std::max(heard.slowest, std::atof(seconds.c_str()));
      heard.reporters += reports == "true";
      heard.messages.insert(message);
    }
    return heard;
  }

 private:
  static std::set<std::string> InDevShm() {
    std::set<std::string> names;
    std::error_code gone;
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm", gone)) {
      // Ignores Open MPI's own files, which may stay.
      const std::string name = entry.path().filename();
      if (!name.starts_with("vader_segment") && !entry.is_directory(gone)) names.insert(entry.path());
    }
    return names;
  }
  // By any process that this one can inspect.
  static bool IsMapped(const std::string& path) {
    std::error_code gone;
    for (const auto& process : std::filesystem::directory_iterator("/proc", gone)) {
      if (std::isdigit(process.path().filename().string()[0]) == 0) continue;
      std::ifstream maps(process.path() / "maps");
      for (std::string line; std::getline(maps, line);) {
        if (line.ends_with(path)) return true;
      }
    }
    return false;
  }

  const ScratchFolder folder_;
  const std::set<std::string> shared_before_ = InDevShm();
};

}  // namespace temper::collectives
