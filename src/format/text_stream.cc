#include "format/text_stream.h"

#include <fmt/core.h>
#include <zlib.h>
#include <zstd.h>
#include <zstd_errors.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <vector>

#include "base/check.h"

namespace temper {
namespace {

constexpr size_t kInput = 64 << 10;
// As zstd itself without --long; a window is memory that a file asks for.
constexpr int kMaxWindowLog = 27;

class PlainStream final : public TextStream {
 public:
  explicit PlainStream(std::unique_ptr<RandomAccessFile> file) : TextStream(std::move(file)) {}

  Result<size_t> Read(std::span<char> out) override {
    const int64_t left = file_->size().v - offset_;
    const size_t n = std::min(out.size(), static_cast<size_t>(std::max<int64_t>(left, 0)));
    if (n > 0) TEMPER_RETURN_IF_ERROR(file_->ReadAt(offset_, std::as_writable_bytes(out.first(n))));
    offset_ += static_cast<int64_t>(n);
    return n;
  }
  Status Rewind() override {
    offset_ = 0;
    return OkStatus();
  }
  bool compressed() const override { return false; }
  Bytes position() const override { return {offset_}; }

 private:
  int64_t offset_ = 0;
};

// What gzip and zstd share: the file's bytes, a piece at a time, and the errors.
class CompressedStream : public TextStream {
 public:
  Bytes position() const override { return {place()}; }

 protected:
  CompressedStream(std::unique_ptr<RandomAccessFile> file, const char* format)
      : TextStream(std::move(file)), format_(format) {}

  Status Refill() {
    if (begin_ < end_) return OkStatus();
    begin_ = 0;
    const int64_t left = file_->size().v - offset_;
    end_ = std::min(kInput, static_cast<size_t>(std::max<int64_t>(left, 0)));
    if (end_ > 0) {
      TEMPER_RETURN_IF_ERROR(file_->ReadAt(offset_, std::as_writable_bytes(std::span(input_).first(end_))));
    }
    offset_ += static_cast<int64_t>(end_);
    return OkStatus();
  }
  void RewindInput() {
    begin_ = end_ = 0;
    offset_ = 0;
  }
  // Of the first byte that is not unpacked yet.
  int64_t place() const { return offset_ - static_cast<int64_t>(end_ - begin_); }

  Status CutOff() const {
    return Corrupt(
        fmt::format("{}: the file ends at byte {}, within its {} data: it was cut off; copy or make it again", path(),
                    file_->size().v, format_));
  }
  Status Damaged(const char* why) const {
    return Corrupt(fmt::format("{}: the {} data is damaged before byte {} ({}); copy or make the file again", path(),
                               format_, place(), why));
  }
  Status NotCompressed() const {
    return Corrupt(fmt::format("{}: bytes that are not {} data follow at byte {}; copy or make the file again", path(),
                               format_, place()));
  }

  const char* const format_;
  std::array<char, kInput> input_;
  size_t begin_ = 0, end_ = 0;  // unread bytes of input_
  int64_t offset_ = 0;          // in the file, of the byte after input_'s last
};

class GzipStream final : public CompressedStream {
 public:
  explicit GzipStream(std::unique_ptr<RandomAccessFile> file) : CompressedStream(std::move(file), "gzip") {
    constexpr int kGzipOnly = 16;
    TEMPER_CHECK(inflateInit2(&inflate_, MAX_WBITS + kGzipOnly) == Z_OK) << "zlib has no memory";
  }
  ~GzipStream() override { inflateEnd(&inflate_); }

  Result<size_t> Read(std::span<char> out) override {
    for (;;) {
      TEMPER_RETURN_IF_ERROR(Refill());
      if (!in_member_) {
        // Zeros may fill the last block of a tape, as for gunzip.
        while (any_member_ && begin_ < end_ && input_[begin_] == 0) ++begin_;
        TEMPER_RETURN_IF_ERROR(Refill());
        if (begin_ == end_) return 0;
        if (any_member_ && input_[begin_] == 0) continue;
        if (input_[begin_] != '\x1f') return NotCompressed();
        TEMPER_CHECK(inflateReset(&inflate_) == Z_OK);
        in_member_ = any_member_ = true;
      }
      if (begin_ == end_) return CutOff();
      inflate_.next_in = reinterpret_cast<Bytef*>(&input_[begin_]);
      inflate_.avail_in = static_cast<uInt>(end_ - begin_);
      inflate_.next_out = reinterpret_cast<Bytef*>(out.data());
      inflate_.avail_out = static_cast<uInt>(std::min(out.size(), kMostAtOnce));
      const uInt room = inflate_.avail_out;
      const int result = inflate(&inflate_, Z_NO_FLUSH);
      begin_ = end_ - inflate_.avail_in;
      if (result == Z_STREAM_END) {
        in_member_ = false;
      } else if (result != Z_OK && result != Z_BUF_ERROR) {
        return Damaged(inflate_.msg ? inflate_.msg : zError(result));
      }
      if (inflate_.avail_out < room) return room - inflate_.avail_out;
    }
  }
  Status Rewind() override {
    RewindInput();
    in_member_ = any_member_ = false;
    return OkStatus();
  }

 private:
  static constexpr size_t kMostAtOnce = 1 << 30;  // zlib counts in 32 bits

  z_stream inflate_ = {};
  bool in_member_ = false, any_member_ = false;
};

class ZstdStream final : public CompressedStream {
 public:
  explicit ZstdStream(std::unique_ptr<RandomAccessFile> file)
      : CompressedStream(std::move(file), "zstd"), context_(ZSTD_createDCtx()) {
    TEMPER_CHECK(context_ != nullptr) << "zstd has no memory";
    TEMPER_CHECK(!ZSTD_isError(ZSTD_DCtx_setParameter(context_.get(), ZSTD_d_windowLogMax, kMaxWindowLog)));
  }

  Result<size_t> Read(std::span<char> out) override {
    for (;;) {
      TEMPER_RETURN_IF_ERROR(Refill());
      if (begin_ == end_ && !in_frame_) return 0;
      // At the end of the file zstd may still hold text.
      const bool at_end = begin_ == end_;
      ZSTD_inBuffer in{input_.data(), end_, begin_};
      ZSTD_outBuffer to{out.data(), out.size(), 0};
      const size_t result = ZSTD_decompressStream(context_.get(), &to, &in);
      begin_ = in.pos;
      if (ZSTD_isError(result)) return ErrorOf(result);
      in_frame_ = result != 0;
      any_frame_ = true;
      if (to.pos > 0) return to.pos;
      if (at_end) return CutOff();
    }
  }
  Status Rewind() override {
    RewindInput();
    in_frame_ = any_frame_ = false;
    TEMPER_CHECK(!ZSTD_isError(ZSTD_DCtx_reset(context_.get(), ZSTD_reset_session_only)));
    return OkStatus();
  }

 private:
  struct Free {
    void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
  };

  Status ErrorOf(size_t result) const {
    const ZSTD_ErrorCode code = ZSTD_getErrorCode(result);
    if (code == ZSTD_error_frameParameter_windowTooLarge) {
      return Unsupported(fmt::format(
          "{}: it needs a window of more than {} to be unpacked: compress it without --long, or with --long={}", path(),
          ToString(Bytes{int64_t{1} << kMaxWindowLog}), kMaxWindowLog));
    }
    if (code == ZSTD_error_prefix_unknown && any_frame_ && !in_frame_) return NotCompressed();
    return Damaged(ZSTD_getErrorName(result));
  }

  const std::unique_ptr<ZSTD_DCtx, Free> context_;
  bool in_frame_ = false, any_frame_ = false;
};

}  // namespace

Result<std::unique_ptr<TextStream>> TextStream::Open(Env& env, const std::string& path) {
  TEMPER_ASSIGN_OR_RETURN(auto file, env.OpenForRead(path));
  return Open(std::move(file));
}

Result<std::unique_ptr<TextStream>> TextStream::Open(std::unique_ptr<RandomAccessFile> file) {
  std::array<char, 4> head = {};
  const auto n = static_cast<size_t>(std::min<int64_t>(file->size().v, head.size()));
  if (n > 0) TEMPER_RETURN_IF_ERROR(file->ReadAt(0, std::as_writable_bytes(std::span(head).first(n))));
  const std::string_view magic(head.data(), n);
  std::unique_ptr<TextStream> stream;
  if (magic.starts_with("\x1f\x8b")) {
    stream = std::make_unique<GzipStream>(std::move(file));
  } else if (magic.starts_with("\x28\xb5\x2f\xfd")) {
    stream = std::make_unique<ZstdStream>(std::move(file));
  } else {
    stream = std::make_unique<PlainStream>(std::move(file));
  }
  return stream;
}

Result<std::string> ReadWholeText(Env& env, const std::string& path, Bytes limit) {
  TEMPER_ASSIGN_OR_RETURN(const auto stream, TextStream::Open(env, path));
  if (!stream->compressed()) return ReadTextFile(env, path, limit);
  std::string text;
  std::vector<char> piece(256 << 10);
  for (;;) {
    TEMPER_ASSIGN_OR_RETURN(const size_t n, stream->Read(piece));
    if (n == 0) return text;
    if (text.size() + n > static_cast<size_t>(limit.v)) {
      return Corrupt(
          fmt::format("{} unpacks to more than the {} such a file may have: split it", path, ToString(limit)));
    }
    text.append(piece.data(), n);
  }
}

}  // namespace temper
