// libFuzzer target: any bytes as a Parquet file are refused, or give rows that are JSON.
#include <cstdint>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "format/json.h"
#include "format/memory_env_for_test.h"
#include "format/parquet/parquet_reader.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace temper;
  MemoryEnv env;
  env.files["f"] = std::string(reinterpret_cast<const char*>(data), size);
  auto reader = ParquetReader::Open(*env.OpenForRead("f"), {.bytes = MiB(1), .values = 10'000, .parts = 10'000});
  if (!reader.ok()) return reader.status().message().empty() ? std::abort(), 0 : 0;
  JsonRow row;
  for (int n = 0; n < 100; ++n) {
    const auto more = (*reader)->Next(row);
    if (!more.ok() || !*more) break;
    if (row.fault == RowFault::kNone && !ParseOrderedJson(row.json, "row").ok()) std::abort();
  }
  if ((*reader)->bytes_read().v > static_cast<int64_t>(size)) std::abort();
  return 0;
}
