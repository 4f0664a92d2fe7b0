#include "format/text_stream.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/scratch_folder.h"

namespace temper::text_stream_test {
namespace {

std::string Gzip(std::string_view text) {
  z_stream stream = {};
  TEMPER_CHECK(deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + 16, 8, Z_DEFAULT_STRATEGY) == Z_OK);
  std::string out(deflateBound(&stream, text.size()), '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  TEMPER_CHECK(deflate(&stream, Z_FINISH) == Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string Zstd(std::string_view text, int window_log = 0) {
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_checksumFlag, 1);
  if (window_log > 0) {
    ZSTD_CCtx_setParameter(context, ZSTD_c_windowLog, window_log);
    ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
    ZSTD_CCtx_setPledgedSrcSize(context, ZSTD_CONTENTSIZE_UNKNOWN);
  }
  std::string out(ZSTD_compressBound(text.size()) + 64, '\0');
  // As a stream: the size of the text is not known beforehand, so the window is not made smaller.
  ZSTD_inBuffer in{text.data(), text.size(), 0};
  ZSTD_outBuffer to{out.data(), out.size(), 0};
  if (window_log > 0) {
    ZSTD_compressStream2(context, &to, &in, ZSTD_e_continue);
    ZSTD_compressStream2(context, &to, &in, ZSTD_e_flush);
  }
  TEMPER_CHECK(ZSTD_compressStream2(context, &to, &in, ZSTD_e_end) == 0);
  out.resize(to.pos);
  ZSTD_freeCCtx(context);
  return out;
}

class TextStreamTest : public testing::Test {
 protected:
  std::string Write(const std::string& bytes) const {
    const std::string path = folder_ / "t.gz";
    auto file = PosixEnv().OpenForWrite(path);
    TEMPER_CHECK(file.ok() && (*file)->Append(bytes).ok() && (*file)->Close().ok());
    return path;
  }
  // The text, read in pieces of `piece`; an error ends it as "<message>".
  std::string Read(const std::string& bytes, size_t piece = 1000) const {
    const auto stream = TextStream::Open(PosixEnv(), Write(bytes));
    TEMPER_CHECK(stream.ok());
    std::string text;
    std::vector<char> buffer(piece);
    for (int pass = 0; pass < 2; ++pass) {  // after Rewind it is the same
      std::string now;
      for (;;) {
        const auto n = (*stream)->Read(buffer);
        if (!n.ok()) return now + "<" + n.status().message() + ">";
        if (*n == 0) break;
        now.append(buffer.data(), *n);
      }
      EXPECT_TRUE(pass == 0 || now == text);
      text = now;
      EXPECT_TRUE((*stream)->Rewind().ok());
    }
    return text;
  }
  void ExpectError(const std::string& bytes, const std::string& part) const {
    const std::string text = Read(bytes);
    EXPECT_NE(text.find(part), std::string::npos) << text;
  }

  // Some text that compresses, with every byte in it.
  static std::string Text(size_t size) {
    std::string text;
    uint32_t state = 1;
    while (text.size() < size) {
      state = state * 1664525u + 1013904223u;
      text += (state >> 30) == 0 ? std::string(1, static_cast<char>(state >> 22)) : "a row of text, ";
    }
    return text.substr(0, size);
  }

  const ScratchFolder folder_;
};

TEST_F(TextStreamTest, UnpacksWhatGzipAndZstdPacked) {
  for (const size_t size : {0, 1, 1000, 300'000, 3'000'000}) {
    const std::string text = Text(size);
    for (const size_t piece : {7, 1000, 1 << 20}) {
      if (piece == 7 && size > 1000) continue;
      EXPECT_EQ(Read(Gzip(text), piece), text);
      EXPECT_EQ(Read(Zstd(text), piece), text);
    }
  }
  EXPECT_EQ(Read("plain text"), "plain text");
  EXPECT_EQ(Read(""), "");
}

TEST_F(TextStreamTest, SeveralPiecesAreOneText) {
  const std::string a = Text(100'000), b = Text(50'000) + "end";
  EXPECT_EQ(Read(Gzip(a) + Gzip("") + Gzip(b)), a + b);
  EXPECT_EQ(Read(Zstd(a) + Zstd("") + Zstd(b)), a + b);
  EXPECT_EQ(Read(Gzip(a) + std::string(100'000, '\0')), a);  // filled up by a tape
}

TEST_F(TextStreamTest, ACutOffFileIsAnErrorAtEveryLength) {
  for (const std::string& packed : {Gzip(Text(2000)), Zstd(Text(2000))}) {
    for (size_t n = 4; n < packed.size(); ++n) {
      const std::string text = Read(packed.substr(0, n));
      ASSERT_NE(text.find("t.gz: the file ends at byte " + std::to_string(n) + ", within its"), text.npos) << text;
    }
  }
}

TEST_F(TextStreamTest, ADamagedFileNeverGivesAnotherText) {
  const std::string text = Text(2000);
  for (const std::string& packed : {Gzip(text), Zstd(text)}) {
    int errors = 0;
    for (size_t at = 4; at < packed.size(); ++at) {
      std::string damaged = packed;
      damaged[at] = static_cast<char>(damaged[at] ^ 0x41);
      const std::string got = Read(damaged);
      const bool error = got.ends_with(">") && got.find("<" + folder_.path()) != got.npos;
      ASSERT_TRUE(error || got == text) << at;  // gzip's header holds a time and a system
      errors += error;
    }
    EXPECT_GT(errors, static_cast<int>(packed.size()) - 12);
  }
}

TEST_F(TextStreamTest, SaysWhatFollowsTheDataAndWhatNeedsTooMuchMemory) {
  ExpectError(Gzip("abc") + "garbage", "t.gz: bytes that are not gzip data follow at byte 23");
  ExpectError(Zstd("abc") + "garbage", "t.gz: bytes that are not zstd data follow at byte 16");
  ExpectError(Zstd(Text(1000), 28),
              "needs a window of more than 128.00 MiB to be unpacked: compress it without --long");
}

TEST_F(TextStreamTest, ATextHasALimit) {
  const std::string path = Write(Gzip(std::string(1'000'000, 'x')));
  EXPECT_EQ(ReadWholeText(PosixEnv(), path, Bytes{1'000'000})->size(), 1'000'000u);
  EXPECT_NE(ReadWholeText(PosixEnv(), path, Bytes{999'999}).status().message().find("unpacks to more than"),
            std::string::npos);
}

}  // namespace
}  // namespace temper::text_stream_test
