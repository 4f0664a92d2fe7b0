#include "format/parquet/page_codec.h"

#include <brotli/decode.h>
#include <fmt/core.h>
#include <lz4.h>
#include <snappy.h>
#include <zlib.h>
#include <zstd.h>

#include <cstring>
#include <limits>

#include "base/check.h"

namespace temper {
namespace {

enum ParquetCodec : int64_t { kUncompressed, kSnappy, kGzip, kLzo, kBrotli, kLz4, kZstd, kLz4Raw };

bool Inflate(std::span<const char> in, std::span<char> out) {
  constexpr int kGzipOrZlib = 32;
  z_stream stream = {};
  if (inflateInit2(&stream, MAX_WBITS + kGzipOrZlib) != Z_OK) return false;
  // Pages are shorter than 2^31.
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(in.data()));
  stream.avail_in = static_cast<uInt>(in.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  int result = inflate(&stream, Z_FINISH);
  while (result == Z_STREAM_END && stream.avail_in > 0 && stream.avail_out > 0 && inflateReset(&stream) == Z_OK) {
    result = inflate(&stream, Z_FINISH);  // the next member
  }
  const bool whole = result == Z_STREAM_END && stream.avail_out == 0;
  inflateEnd(&stream);
  return whole;
}

}  // namespace

struct PageCodec::Contexts {
  ZSTD_DCtx* zstd = nullptr;  // made for the first page
  ~Contexts() { ZSTD_freeDCtx(zstd); }
};

PageCodec::PageCodec() : contexts_(std::make_unique<Contexts>()) {}
PageCodec::~PageCodec() = default;

Status PageCodec::Check(int64_t codec) {
  switch (codec) {
    case kUncompressed:
    case kSnappy:
    case kGzip:
    case kBrotli:
    case kZstd:
    case kLz4Raw:
      return OkStatus();
    case kLzo:
      return Unsupported("pages are packed with LZO, which is not read: write the file with zstd");
    case kLz4:
      return Unsupported("pages are packed with Hadoop's LZ4, which is not read: write the file with LZ4_RAW or zstd");
    default:
      return Corrupt(fmt::format("pages are packed with codec {}, which Parquet does not know", codec));
  }
}

bool PageCodec::Unpack(int64_t codec, std::span<const char> in, std::span<char> out) {
  if (out.empty()) return true;  // no values: writers leave out even the frame
  TEMPER_CHECK(in.size() <= std::numeric_limits<int32_t>::max() && out.size() <= std::numeric_limits<int32_t>::max());
  switch (codec) {
    case kUncompressed:
      if (in.size() != out.size()) return false;
      std::memcpy(out.data(), in.data(), in.size());
      return true;
    case kSnappy: {
      size_t size = 0;
      return snappy::GetUncompressedLength(in.data(), in.size(), &size) && size == out.size() &&
             snappy::RawUncompress(in.data(), in.size(), out.data());
    }
    case kGzip:
      return Inflate(in, out);
    case kBrotli: {
      size_t size = out.size();
      return BrotliDecoderDecompress(in.size(), reinterpret_cast<const uint8_t*>(in.data()), &size,
                                     reinterpret_cast<uint8_t*>(out.data())) == BROTLI_DECODER_RESULT_SUCCESS &&
             size == out.size();
    }
    case kZstd:
      if (contexts_->zstd == nullptr) contexts_->zstd = ZSTD_createDCtx();
      TEMPER_CHECK(contexts_->zstd != nullptr) << "zstd has no memory";
      return ZSTD_decompressDCtx(contexts_->zstd, out.data(), out.size(), in.data(), in.size()) == out.size();
    case kLz4Raw:
      return LZ4_decompress_safe(in.data(), out.data(), static_cast<int>(in.size()), static_cast<int>(out.size())) ==
             static_cast<int>(out.size());
    default:
      TEMPER_CHECK(false) << "codec " << codec << " was not checked";
      return false;
  }
}

}  // namespace temper
