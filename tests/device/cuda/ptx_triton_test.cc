// Kernels compiled by Triton, run by the machine and compared with numpy: triton_kernels.py writes them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "ptx_under_test.h"

namespace temper::ptx::ptx_triton_test {
namespace {

template <class T>
std::vector<T> ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

// `description`: NAME.txt, beside NAME.ptx and its operands.
void Check(const std::filesystem::path& description) {
  const std::string name = description.stem().string();
  SCOPED_TRACE(name);
  const auto beside = [&](const std::string& what) { return description.parent_path() / (name + "." + what); };
  const std::vector<char> text = ReadAll<char>(beside("ptx"));
  auto module = Module::Parse({text.data(), text.size()});
  ASSERT_TRUE(module.ok()) << module.status().message();
  const std::vector<float> expected = ReadAll<float>(beside("expected"));
  Module::Launch launch{};
  launch.grid = launch.block = {1, 1, 1};
  Heap heap;
  std::vector<uint64_t> values;
  uint64_t out = 0;
  double tolerance = 0;
  std::ifstream file(description);
  std::string kernel, what, value;
  while (file >> what >> value) {
    if (what == "kernel") kernel = value;
    if (what == "grid") launch.grid[0] = std::stoi(value);
    if (what == "threads") launch.block[0] = std::stoi(value);
    if (what == "shared") launch.dynamic_shared_bytes = std::stoi(value);
    if (what == "operand") values.push_back(heap.Put(ReadAll<char>(beside(value))));
    if (what == "integer") values.push_back(std::stoull(value));
    if (what == "tolerance") tolerance = std::stod(value);
    if (what == "result") {
      out = heap.Put(std::vector<float>(expected.size(), NAN));
      values.push_back(out);
    }
  }
  launch.kernel = kernel;
  // Parameters that Triton adds are pointers to scratch that these kernels do not use.
  values.resize(values.size() + 4);
  std::vector<void*> arguments;
  for (uint64_t& x : values) arguments.push_back(&x);
  launch.arguments = arguments.data();
  const Status status = (*module)->Run(launch, heap);
  ASSERT_TRUE(status.ok()) << status.message();
  const std::vector<float> is = heap.Get<float>(out);
  double most = 0;
  for (size_t i = 0; i < is.size(); ++i) {
    const double difference = std::fabs(is[i] - expected[i]);
    most = difference <= most ? most : difference;  // NaN counts
  }
  EXPECT_LE(most, tolerance);
}

TEST(TritonKernels, ComputesWhatItsSourceSays) {
  const char* const folder = std::getenv("TEMPER_TRITON_KERNELS");
  if (folder == nullptr) GTEST_SKIP() << "TEMPER_TRITON_KERNELS is not set: see triton_kernels.py";
  std::vector<std::filesystem::path> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) {
    if (entry.path().extension() == ".txt") kernels.push_back(entry.path());
  }
  std::sort(kernels.begin(), kernels.end());
  ASSERT_FALSE(kernels.empty());
  for (const auto& kernel : kernels) Check(kernel);
}

}  // namespace
}  // namespace temper::ptx::ptx_triton_test
