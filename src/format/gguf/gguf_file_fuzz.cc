// libFuzzer target: any bytes as a GGUF file are refused or read without a fault.
#include <algorithm>
#include <cstdint>
#include <cstdlib>

#include "format/gguf/gguf_file.h"
#include "format/memory_env_for_test.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  MemoryEnv env;
  env.files["f"] = std::string(reinterpret_cast<const char*>(data), size);
  const auto file = GgufFile::Open(env, "f");
  if (!file.ok()) return file.status().message().empty() ? std::abort(), 0 : 0;
  for (const StoredTensor& t : file->tensors()) {
    (void)t.ToString();
    constexpr int64_t kMost = 1 << 16;
    std::vector<std::byte> bytes(static_cast<size_t>(std::min(t.bytes().v, kMost)));
    if (!file->ReadRange(t.name, 0, bytes).ok()) std::abort();
    if (!file->ReadRange(t.name, t.bytes().v - std::ssize(bytes), bytes).ok()) std::abort();
    if (const auto place = file->PlaceOf(t.name); place && *place + t.bytes().v > file->size().v) std::abort();
  }
  return 0;
}
