// Kernels that Triton compiled, run by the machine and held against numpy: triton_kernels.py writes them.
#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>

#include "ptx_under_test.h"

namespace temper::ptx {
namespace {

template <class T>
std::vector<T> ReadAll(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(file)), {});
  std::vector<T> values(bytes.size() / sizeof(T));
  std::memcpy(values.data(), bytes.data(), values.size() * sizeof(T));
  return values;
}

void Check(const std::filesystem::path& folder) {
  SCOPED_TRACE(folder.filename().string());
  const std::vector<char> text = ReadAll<char>(folder / "kernel.ptx");
  auto module = Module::Parse({text.data(), text.size()});
  ASSERT_TRUE(module.ok()) << module.status().message();
  std::ifstream file(folder / "launch.txt");
  Module::Launch launch{};
  std::string name, word;
  float tolerance = 0;
  file >> name >> launch.grid[0] >> launch.grid[1] >> launch.grid[2] >> launch.block[0] >>
      launch.dynamic_shared_bytes >> tolerance;
  launch.kernel = name;
  launch.block[1] = launch.block[2] = 1;
  Heap heap;
  // What Triton adds to the parameters are pointers to scratch that these kernels do not use.
  std::vector<uint64_t> values;
  uint64_t out = 0;
  std::vector<float> expected;
  while (file >> word) {
    std::string value;
    file >> value;
    if (word == "word") {
      values.push_back(std::stoull(value));
    } else if (word == "in") {
      values.push_back(heap.Put(ReadAll<char>(folder / value)));
    } else {
      expected = ReadAll<float>(folder / value);
      out = heap.Put(std::vector<float>(expected.size(), NAN));
      values.push_back(out);
    }
  }
  values.resize(values.size() + 4);
  std::vector<void*> arguments;
  for (uint64_t& value : values) arguments.push_back(&value);
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

TEST(PtxTriton, ComputesWhatItsSourceSays) {
  const char* const folder = std::getenv("TEMPER_TRITON_KERNELS");
  if (folder == nullptr) GTEST_SKIP() << "TEMPER_TRITON_KERNELS is not set: see triton_kernels.py";
  std::vector<std::filesystem::path> kernels;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) kernels.push_back(entry.path());
  std::sort(kernels.begin(), kernels.end());
  ASSERT_FALSE(kernels.empty());
  for (const auto& kernel : kernels) Check(kernel);
}

}  // namespace
}  // namespace temper::ptx
