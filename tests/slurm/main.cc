// Starts a Slurm cluster of two nodes, runs the tests in it, and
// stops it. If a machine cannot have one, the tests are skipped.
#include <gtest/gtest.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstdlib>
#include <string>
#include <vector>

#include "base/project_folder_for_test.h"

namespace {

using temper::kProjectFolder;

constexpr char kInside[] = "TEMPER_TEST_CLUSTER";
const std::string kScript = std::string(kProjectFolder) + "/tests/slurm/two_nodes.sh";
constexpr int kNoCluster = 77;  // exit code of two_nodes.sh

// Runs this program in a cluster; returns its exit code.
int RunInCluster(int argc, char** argv) {
  std::vector<std::string> command = {kScript, "/proc/self/exe"};
  char self[4096] = {};
  if (readlink("/proc/self/exe", self, sizeof self - 1) > 0) command.back() = self;
  command.insert(command.end(), argv + 1, argv + argc);
  std::vector<char*> pointers;
  for (std::string& s : command) pointers.push_back(s.data());
  pointers.push_back(nullptr);
  const pid_t child = fork();
  if (child == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that times out must not leave a cluster behind
    setenv(kInside, "1", 1);
    execv(kScript.c_str(), pointers.data());
    _exit(126);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

class NoCluster : public testing::Environment {
  void SetUp() override { GTEST_SKIP() << "this machine cannot have a Slurm cluster"; }
};

}  // namespace

int main(int argc, char** argv) {
  const std::vector<std::string> arguments(argv + 1, argv + argc);
  testing::InitGoogleTest(&argc, argv);
  if (std::getenv(kInside) == nullptr && !GTEST_FLAG_GET(list_tests)) {
    std::vector<char*> all = {argv[0]};
    for (const std::string& a : arguments) all.push_back(const_cast<char*>(a.c_str()));
    const int code = RunInCluster(static_cast<int>(all.size()), all.data());
    if (code != kNoCluster) return code;
    testing::AddGlobalTestEnvironment(new NoCluster);
  }
  return RUN_ALL_TESTS();
}
