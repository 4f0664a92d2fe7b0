#include "base/progress_text.h"

#include <gtest/gtest.h>

namespace temper::progress_text_test {
namespace {

ProgressState Full() {
  ProgressState s;
  s.step = 120;
  s.total_steps = 480;
  s.epoch = 0.75;
  s.loss = 2.34567;
  s.grad_norm = 1.234;
  s.learning_rate = 1.9e-4;
  s.tokens_per_second = 12345.6;
  s.mfu = 0.713;
  s.memory = MiB(1536);
  s.eta = Seconds{200};
  return s;
}

// Columns of UTF-8 text whose every character is one column wide.
int Columns(const std::string& text) {
  int columns = 0;
  for (const char c : text) columns += (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  return columns;
}

TEST(ProgressText, LineHasEveryFigure) {
  EXPECT_EQ(ProgressLine(Full()),
            "train step 120/480  epoch 0.75  loss 2.3457  grad 1.23  lr 1.9e-04  12,346 tok/s  MFU 71%  1.50 GiB  "
            "ETA 3 m 20 s");
}

TEST(ProgressText, BarShowsTheDoneFraction) {
  ProgressState s = Full();
  EXPECT_EQ(ProgressBar(s, 200, false),
            "train 120/480 [#######.......................]  25%  loss 2.3457  grad 1.23  lr 1.9e-04  12,346 tok/s  "
            "MFU 71%  1.50 GiB  ETA 3 m 20 s");
  s = ProgressState{.what = "load", .step = 1, .total_steps = 16};
  EXPECT_EQ(ProgressBar(s, 33, true), "load 1/16 |\xE2\x96\x88               |   6%");
  s.step = 16;
  EXPECT_EQ(ProgressBar(s, 33, false), "load 16/16 [###############] 100%");
}

TEST(ProgressText, BarFitsAnyWidth) {
  for (const bool unicode : {false, true}) {
    for (int64_t step : {0, 1, 119, 479, 480, 481}) {
      ProgressState s = Full();
      s.step = step;
      for (int width = 0; width < 220; ++width) {
        const std::string bar = ProgressBar(s, width, unicode);
        EXPECT_LE(Columns(bar), width) << bar;
        EXPECT_EQ(bar.find_first_of("\r\n\x1b"), std::string::npos);
      }
    }
  }
}

TEST(ProgressText, NarrowBarsKeepTheLossLongest) {
  EXPECT_NE(ProgressBar(Full(), 80, true).find("tok/s"), std::string::npos);
  EXPECT_EQ(ProgressBar(Full(), 80, true).find("GiB"), std::string::npos);
  EXPECT_EQ(ProgressBar(Full(), 42, false), "train 120/480 [##......]  25%  loss 2.3457");
}

TEST(ProgressText, UnknownFiguresAreOmitted) {
  ProgressState s;
  s.what = "eval";
  s.total_steps = 4;
  EXPECT_EQ(ProgressLine(s), "eval 0/4");
  EXPECT_NE(ProgressBar(ProgressState{}, 80, false).find("0/0"), std::string::npos)
      << "without a total there is no division by it";
}

TEST(ProgressText, LocaleDecidesTheCharacters) {
  setenv("LC_ALL", "C", 1);
  EXPECT_FALSE(LocaleIsUtf8());
  setenv("LC_ALL", "de_DE.UTF-8", 1);
  EXPECT_TRUE(LocaleIsUtf8());
  setenv("LC_ALL", "", 1);
  setenv("LC_CTYPE", "C.utf8", 1);
  EXPECT_TRUE(LocaleIsUtf8()) << "an empty LC_ALL counts as unset";
  unsetenv("LC_ALL");
  unsetenv("LC_CTYPE");
}

}  // namespace
}  // namespace temper::progress_text_test
