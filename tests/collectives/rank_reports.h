// What ranks that are processes left behind: a folder for what they write, and what all of them heard of a mishap.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "base/scratch_folder.h"

namespace temper::collectives {

class RankProcesses : public testing::Test {
 protected:
  void ExpectNothingInDevShm() const { EXPECT_EQ(InDevShm(), shared_before_) << "nothing may be left behind"; }

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

  // What the ranks other than the culprit wrote.
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
    for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
      // Not what tests that run beside this one have there: Open MPI's segments, clang's OpenMP's marks, folders.
      const std::string name = entry.path().filename();
      const bool foreign = name.starts_with("vader_segment") || name.starts_with("__KMP_REGISTERED_LIB");
      if (!foreign && !entry.is_directory()) names.insert(entry.path());
    }
    return names;
  }

  const ScratchFolder folder_;
  const std::set<std::string> shared_before_ = InDevShm();
};

}  // namespace temper::collectives
