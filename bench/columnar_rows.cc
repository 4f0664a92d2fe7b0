// How fast are rows read from a Parquet or Arrow file? MB per second of a processor, of the file and of the JSON that
// its rows become.
//
// usage: columnar_rows FILE [--print]     --print: the rows as JSON lines, for tests/format/make_columnar_goldens.py
#include <fmt/core.h>

#include <cstdio>
#include <ctime>
#include <string_view>

#include "data/open_rows.h"

namespace temper {
namespace {

int Run(const std::string& path, bool print) {
  const auto start = std::clock();
  const auto reader = OpenRows(PosixEnv(), path);
  RawRow row;
  int64_t rows = 0, bytes = 0;
  Status status = reader.status();
  while (status.ok()) {
    const auto more = (*reader)->Next(row);
    status = more.ok() ? row.error : more.status();
    if (!more.ok() || !*more) break;
    ++rows;
    bytes += static_cast<int64_t>(row.text.size());
    if (print) fmt::print("{}\n", row.text);
  }
  if (!status.ok()) {
    fmt::print(stderr, "{}\n", status.message());
    return 1;
  }
  const double seconds = static_cast<double>(std::clock() - start) / CLOCKS_PER_SEC;
  const double megabytes = static_cast<double>((*reader)->bytes_read().v) / 1e6;
  if (!print) {
    fmt::print("{} rows in {:.3f} s: {:.0f} MB/s of the file, {:.0f} MB/s of JSON\n", rows, seconds,
               megabytes / seconds, static_cast<double>(bytes) / 1e6 / seconds);
  }
  return 0;
}

}  // namespace
}  // namespace temper

int main(int argc, char** argv) {
  if (argc < 2) {
    fmt::print(stderr, "usage: columnar_rows FILE [--print]\n");
    return 2;
  }
  return temper::Run(argv[1], argc > 2 && std::string_view(argv[2]) == "--print");
}
