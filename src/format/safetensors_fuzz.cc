// libFuzzer target: any bytes as a safetensors file are refused or read without a fault.
#include <cstdint>
#include <cstdlib>

#include "format/conversion.h"
#include "format/memory_env_for_test.h"
#include "format/safetensors.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  MemoryEnv env;
  env.files["f"] = std::string(reinterpret_cast<const char*>(data), size);
  auto file = SafetensorsFile::Open(env, "f");
  if (!file.ok()) return file.status().message().empty() ? std::abort(), 0 : 0;
  int64_t covered = 0;
  for (const StoredTensor& t : file->tensors()) {
    if (t.begin != covered) std::abort();
    covered = t.end;
    std::vector<std::byte> bytes(static_cast<size_t>(t.bytes().v));
    if (!file->ReadTensor(t.name, bytes).ok()) std::abort();
    std::vector<std::byte> floats(static_cast<size_t>(t.elements() * 4));
    const bool read = file->ReadAs(t.name, DType::kF32, floats).ok();
    const auto type = t.type();
    if (!read && type.ok() && IsFloating(type->dtype)) std::abort();
    (void)t.ToString();
  }
  if (file->data_begin() + covered != file->size().v) std::abort();
  // What was understood can be written and understood again.
  const SafetensorsHeader header{.tensors = file->tensors(), .metadata = file->metadata()};
  const auto bytes = FormatSafetensorsHeader(header);
  if (!bytes.ok()) return 0;  // only for a tensor that no writer may name
  if (!ParseSafetensorsHeader(std::string_view(*bytes).substr(8), covered, "f").ok()) std::abort();
  return 0;
}
