#include "device/device_part.h"

#include <gtest/gtest.h>

#include "device/elsewhere_for_test.h"

namespace temper::device_part_test {
namespace {

// Rows 10.. of a matrix, or elements, that number their place in the whole.
struct Case {
  Shape shape, global, begin;
};
std::vector<Case> Cases() {
  return {{{3000, 700}, {5000, 700}, {10, 0}},   // several pieces, and a rest
          {{2, 1500000}, {2, 1500000}, {0, 0}},  // a row is more than a piece
          {{2500001}, {2500001}, {0}},           // a vector
          {{7, 5}, {9, 8}, {1, 2}},              // a part of each row
          {{0, 5}, {9, 5}, {9, 0}}};             // nothing
}

TEST(HostWindow, FillsAndReadsWhatIsElsewherePieceByPiece) {
  for (const Case& c : Cases()) {
    Elsewhere stream;
    const View view{nullptr, {DType::kF32, c.shape}};
    std::vector<float> memory(static_cast<size_t>(c.shape.elements()) + 1, -1.0f);
    PartView part({reinterpret_cast<std::byte*>(memory.data()), view.type}, c.global, c.begin);
    HostWindow window;
    const auto number = [](const PartView& piece) {
      size_t i = 0;
      for (int64_t row = 0; row < piece.rows(); ++row) {
        for (int64_t column = 0; column < piece.columns(); ++column) {
          piece.view.as<float>()[i++] = static_cast<float>(piece.RowBegin(row) + column);
        }
      }
      return OkStatus();
    };
    ASSERT_TRUE(window.Fill({part, stream}, number).ok());
    std::vector<float> want(memory.size(), -1.0f);
    PartView host = part;
    host.view.data = reinterpret_cast<std::byte*>(want.data());
    ASSERT_TRUE(number(host).ok());
    EXPECT_EQ(memory, want) << c.shape.ToString();
    const int64_t row_bytes = c.shape.rank() == 1 ? 4 : c.shape.columns() * 4;
    EXPECT_LE(stream.most(), static_cast<size_t>(std::max(HostWindow::kBytes.v, row_bytes)));

    std::vector<std::byte> read;
    ASSERT_TRUE(window
                    .Read({part, stream},
                          [&](std::span<const std::byte> bytes) {
                            read.insert(read.end(), bytes.begin(), bytes.end());
                            return OkStatus();
                          })
                    .ok());
    ASSERT_EQ(read.size(), static_cast<size_t>(view.type.bytes().v));
    EXPECT_TRUE(std::equal(read.begin(), read.end(), host.view.raw().begin())) << c.shape.ToString();
  }
}

TEST(HostWindow, PutsBytesThatComeInAnyOrderWhereTheyBelong) {
  constexpr int64_t kElements = 2'750'001, kBytes = 4 * kElements, kRun = 700'001;
  std::vector<std::byte> from(kBytes);
  for (size_t i = 0; i < from.size(); ++i) from[i] = static_cast<std::byte>(i * i >> 7);
  for (const bool away : {false, true}) {
    Elsewhere elsewhere;
    std::vector<std::byte> memory(from.size());
    const PartView part(View{memory.data(), {DType::kI32, {kElements}}});
    const DevicePart to = away ? DevicePart(part, elsewhere) : DevicePart(part);
    HostWindow window;
    for (int64_t begin = kBytes / kRun * kRun; begin >= 0; begin -= kRun) {
      const auto n = static_cast<size_t>(std::min(kRun, kBytes - begin));
      ASSERT_TRUE(window.Put(to, begin, std::span(from).subspan(static_cast<size_t>(begin), n)).ok());
    }
    ASSERT_TRUE(window.Flush().ok());
    EXPECT_TRUE(memory == from) << (away ? "elsewhere" : "on the host");
    EXPECT_LE(elsewhere.most(), static_cast<size_t>(HostWindow::kBytes.v));
    // In order: as few copies as there can be.
    elsewhere.Forget();
    for (int64_t begin = 0; begin < kBytes; begin += kRun) {
      const auto n = static_cast<size_t>(std::min(kRun, kBytes - begin));
      ASSERT_TRUE(window.Put(to, begin, std::span(from).subspan(static_cast<size_t>(begin), n)).ok());
    }
    ASSERT_TRUE(window.Flush().ok());
    EXPECT_EQ(elsewhere.copies(), away ? (kBytes + HostWindow::kBytes.v - 1) / HostWindow::kBytes.v : 0);
  }
}

TEST(HostWindow, WhatIsOnTheHostIsUsedInPlace) {
  std::vector<float> memory(2500001);
  const View view{reinterpret_cast<std::byte*>(memory.data()), {DType::kF32, {2500001}}};
  HostWindow window;
  int calls = 0;
  ASSERT_TRUE(window
                  .Fill(view,
                        [&](const PartView& piece) {
                          ++calls;
                          EXPECT_EQ(piece.view.data, view.data);
                          return OkStatus();
                        })
                  .ok());
  ASSERT_TRUE(window
                  .Read(view,
                        [&](std::span<const std::byte> bytes) {
                          EXPECT_EQ(bytes.data(), view.data);
                          return OkStatus();
                        })
                  .ok());
  EXPECT_EQ(calls, 1);
}

TEST(HostWindow, AnErrorOfTheFillerEndsIt) {
  Elsewhere stream;
  std::vector<float> memory(2500001);
  const View view{reinterpret_cast<std::byte*>(memory.data()), {DType::kF32, {2500001}}};
  HostWindow window;
  int calls = 0;
  const Status status = window.Fill({PartView(view), stream}, [&](const PartView&) {
    return ++calls == 2 ? InvalidArgument("the file ended") : OkStatus();
  });
  EXPECT_EQ(status.message(), "the file ended");
  EXPECT_EQ(calls, 2);
}

}  // namespace
}  // namespace temper::device_part_test
