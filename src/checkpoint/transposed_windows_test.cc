#include "checkpoint/transposed_windows.h"

#include <gtest/gtest.h>

#include <numeric>

#include "device/elsewhere_for_test.h"
#include "format/transpose.h"

namespace temper::transposed_windows_test {
namespace {

// A file's matrix of `ins` rows and `outs` columns, and its transpose.
constexpr int64_t kIns = 11, kOuts = 7, kSize = 4;
std::vector<int32_t> Stored() {
  std::vector<int32_t> numbers(kIns * kOuts);
  std::iota(numbers.begin(), numbers.end(), 100);
  return numbers;
}
std::vector<int32_t> Turned() {
  std::vector<int32_t> numbers;
  for (int64_t o = 0; o < kOuts; ++o) {
    for (int64_t i = 0; i < kIns; ++i) numbers.push_back(Stored()[static_cast<size_t>(i * kOuts + o)]);
  }
  return numbers;
}
// Less than a row, a row, some rows and a part of one, all.
constexpr Bytes kWindows[] = {{1}, {kOuts * kSize}, {3 * kOuts * kSize + 5}, {kIns * kOuts * kSize}, kFarWindow};

TEST(TransposedWindows, FillReadsEachRowOfTheFileOnce) {
  for (const Bytes window : kWindows) {
    std::vector<int32_t> memory(kIns * kOuts);
    const PartView part({reinterpret_cast<std::byte*>(memory.data()), {DType::kI32, {kOuts, kIns}}});
    int64_t next = 0;
    const auto read = [&](const PartView& rows) {
      EXPECT_EQ(rows.begin[0], next);
      EXPECT_LE(rows.view.type.bytes(), std::max(window, Bytes{kOuts * kSize}));
      next += rows.view.type.shape[0];
      std::memcpy(rows.view.data, Stored().data() + rows.RowBegin(0), static_cast<size_t>(rows.view.type.bytes().v));
      return OkStatus();
    };
    ASSERT_TRUE(FillTransposed(part, read, window).ok());
    EXPECT_EQ(next, kIns);
    EXPECT_EQ(memory, Turned());
  }
}

TEST(TransposedWindows, ReadGivesTheFilesRowsInWindowsWhereverThePartsLie) {
  for (const Bytes window : kWindows) {
    for (const bool away : {false, true}) {
      Elsewhere device;
      Stream& stream = away ? static_cast<Stream&>(device) : HostStream();
      std::vector<int32_t> memory = Turned(), given;
      const auto rows = [&](int64_t first, int64_t n) {
        const View view{reinterpret_cast<std::byte*>(memory.data() + first * kIns), {DType::kI32, {n, kIns}}};
        return DevicePart(PartView(view, {kOuts, kIns}, {first, 0}), stream);
      };
      const std::vector<DevicePart> parts = {rows(0, 2), rows(2, 4), rows(6, 1)};
      const auto take = [&](std::span<const std::byte> bytes) {
        EXPECT_LE(std::ssize(bytes), std::max(window.v, kOuts * kSize));
        const auto* const numbers = reinterpret_cast<const int32_t*>(bytes.data());
        given.insert(given.end(), numbers, numbers + bytes.size() / kSize);
        return OkStatus();
      };
      ASSERT_TRUE(ReadTransposed(parts, take, window).ok());
      EXPECT_EQ(given, Stored()) << window.v;
    }
  }
}

// As LoadSlices may give them: whole rows, rows that end anywhere, and columns that another rank saved.
TEST(TransposedWindows, PutTakesRunsOfAnyLengthAndOrder) {
  const std::vector<int32_t> stored = Stored();
  std::vector<std::vector<std::pair<int64_t, int64_t>>> ways(4);  // of elements: first, number
  for (int64_t e = 0; e < kIns * kOuts; e += 10) ways[0].push_back({e, std::min<int64_t>(10, kIns * kOuts - e)});
  for (const int64_t begin : {3, 0}) {
    for (int64_t r = 0; r < kIns; ++r) ways[1].push_back({r * kOuts + begin, begin == 0 ? 3 : kOuts - 3});
  }
  ways[2] = {{0, kIns * kOuts}};
  for (int64_t r = kIns; r-- > 0;) ways[3].push_back({r * kOuts, kOuts});
  for (const Bytes window : kWindows) {
    for (const auto& way : ways) {
      std::vector<int32_t> memory(kIns * kOuts);
      const PutBytes put = [&](int64_t at, std::span<const std::byte> bytes) {
        EXPECT_LE(std::ssize(bytes), std::max(window.v, kOuts * kSize));
        std::memcpy(reinterpret_cast<std::byte*>(memory.data()) + at, bytes.data(), bytes.size());
        return OkStatus();
      };
      TransposedPut turned({kOuts, kIns}, kSize, put, window);
      for (const auto& [first, n] : way) {
        const auto run = std::span(stored).subspan(static_cast<size_t>(first), static_cast<size_t>(n));
        ASSERT_TRUE(turned.Put(first * kSize, std::as_bytes(run)).ok());
      }
      ASSERT_TRUE(turned.Flush().ok());
      EXPECT_EQ(memory, Turned()) << window.v;
    }
  }
}

// Runs that end within rows, as a checkpoint's slices do, are no reason to put short ones.
TEST(TransposedWindows, PutGivesEachRowOncePerWindowHoweverTheRunsAreCut) {
  constexpr int64_t kRows = 3072, kColumns = 768, kAll = kRows * kColumns, kRun = (512 << 10) / kSize + 100;
  const std::vector<int32_t> stored(kAll, 1);
  for (const auto& [window, windows] : {std::pair{kFarWindow, 1}, std::pair{MiB(4), 3}}) {
    int64_t puts = 0, elements = 0;
    const PutBytes put = [&](int64_t, std::span<const std::byte> bytes) {
      ++puts;
      elements += std::ssize(bytes) / kSize;
      return OkStatus();
    };
    TransposedPut turned({kColumns, kRows}, kSize, put, window);
    for (int64_t e = 0; e < kAll; e += kRun) {
      const auto run = std::span(stored).subspan(static_cast<size_t>(e), static_cast<size_t>(std::min(kRun, kAll - e)));
      ASSERT_TRUE(turned.Put(e * kSize, std::as_bytes(run)).ok());
    }
    ASSERT_TRUE(turned.Flush().ok());
    EXPECT_EQ(elements, kAll);
    EXPECT_LE(puts, windows * kColumns);
  }
}

}  // namespace
}  // namespace temper::transposed_windows_test
