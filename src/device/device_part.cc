#include "device/device_part.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "base/check.h"

namespace temper {
namespace {

// Lines [first, first + n) of the part: rows of a matrix, elements of a vector.
PartView Lines(const PartView& part, int64_t first, int64_t n, std::byte* memory) {
  PartView lines = part;
  lines.view.data = memory;
  if (part.global.rank() == 0) return lines;
  lines.view.type.shape.set_dim(0, n);
  lines.begin.set_dim(0, part.begin[0] + first);
  return lines;
}

}  // namespace

Status HostWindow::Fill(const DevicePart& to, const std::function<Status(const PartView& piece)>& fill) {
  if (to.on_host()) return fill(to.part);
  TEMPER_CHECK(gathered_ == 0) << "no Flush between Put and Fill";
  const View& view = to.part.view;
  const int64_t lines = view.type.shape.rank() == 0 ? 1 : view.type.shape[0];
  if (view.type.bytes() == Bytes{0}) return OkStatus();
  const int64_t line_bytes = view.type.bytes().v / lines;
  if (view.type.shape.rank() > 2 && line_bytes > kBytes.v) {
    for (int64_t i = 0; i < lines; ++i) {
      TEMPER_RETURN_IF_ERROR(FillLine({Lines(to.part, i, 1, view.data + i * line_bytes), *to.stream}, fill));
    }
    return OkStatus();
  }
  const int64_t at_once = std::clamp<int64_t>(kBytes.v / line_bytes, 1, lines);
  memory_.resize(std::max(memory_.size(), static_cast<size_t>(at_once * line_bytes)));
  for (int64_t first = 0; first < lines; first += at_once) {
    const int64_t n = std::min(at_once, lines - first);
    TEMPER_RETURN_IF_ERROR(fill(Lines(to.part, first, n, memory_.data())));
    const auto bytes = std::span(memory_).first(static_cast<size_t>(n * line_bytes));
    TEMPER_RETURN_IF_ERROR(to.stream->CopyToDevice(bytes, view.data + first * line_bytes));
    TEMPER_RETURN_IF_ERROR(to.stream->Synchronize());
  }
  return OkStatus();
}

Status HostWindow::FillLine(const DevicePart& line, const std::function<Status(const PartView& piece)>& fill) {
  // The line without its first dim, and pieces of it with that dim again.
  PartView inner;
  inner.view = line.part.view;
  inner.view.type.shape = Shape();
  for (int d = 1; d < line.part.global.rank(); ++d) {
    inner.view.type.shape.Append(line.part.view.type.shape[d]);
    inner.global.Append(line.part.global[d]);
    inner.begin.Append(line.part.begin[d]);
  }
  return Fill({inner, *line.stream}, [&](const PartView& piece) {
    PartView whole = line.part;
    whole.view.data = piece.view.data;
    for (int d = 1; d < whole.global.rank(); ++d) {
      whole.view.type.shape.set_dim(d, piece.view.type.shape[d - 1]);
      whole.begin.set_dim(d, piece.begin[d - 1]);
    }
    return fill(whole);
  });
}

Status HostWindow::Put(const DevicePart& to, int64_t at, std::span<const std::byte> bytes) {
  TEMPER_CHECK(at >= 0 && at + std::ssize(bytes) <= to.part.view.type.bytes().v) << "bytes beyond the part's";
  std::byte* place = to.part.view.data + at;
  if (to.on_host()) {
    if (!bytes.empty()) std::memcpy(place, bytes.data(), bytes.size());
    return OkStatus();
  }
  TEMPER_CHECK(gathered_ == 0 || stream_ == to.stream) << "no Flush between two streams";
  stream_ = to.stream;
  memory_.resize(std::max(memory_.size(), static_cast<size_t>(kBytes.v)));
  while (!bytes.empty()) {
    if (gathered_ == kBytes.v) TEMPER_RETURN_IF_ERROR(Flush());
    const int64_t n = std::min<int64_t>(std::ssize(bytes), kBytes.v - gathered_);
    std::memcpy(memory_.data() + gathered_, bytes.data(), static_cast<size_t>(n));
    if (runs_.empty() || runs_.back().to + runs_.back().bytes != place) runs_.push_back({place, 0});
    runs_.back().bytes += n;
    gathered_ += n;
    place += n;
    bytes = bytes.subspan(static_cast<size_t>(n));
  }
  return OkStatus();
}

Status HostWindow::Flush() {
  if (gathered_ == 0) return OkStatus();
  std::span<const std::byte> rest = memory_;
  for (const Run& run : runs_) {
    const auto n = static_cast<size_t>(run.bytes);
    TEMPER_RETURN_IF_ERROR(stream_->CopyToDevice(rest.first(n), run.to));
    rest = rest.subspan(n);
  }
  runs_.clear();
  gathered_ = 0;
  return stream_->Synchronize();
}

Status HostWindow::Read(const DevicePart& from, const std::function<Status(std::span<const std::byte> bytes)>& take) {
  std::span<const std::byte> rest = from.part.view.raw();
  if (from.on_host()) return take(rest);
  TEMPER_CHECK(gathered_ == 0) << "no Flush between Put and Read";
  memory_.resize(std::max(memory_.size(), std::min(rest.size(), static_cast<size_t>(kBytes.v))));
  while (!rest.empty()) {
    const auto piece = rest.first(std::min(rest.size(), static_cast<size_t>(kBytes.v)));
    const auto bytes = std::span(memory_).first(piece.size());
    TEMPER_RETURN_IF_ERROR(from.stream->CopyToHost(piece.data(), bytes));
    TEMPER_RETURN_IF_ERROR(from.stream->Synchronize());
    TEMPER_RETURN_IF_ERROR(take(bytes));
    rest = rest.subspan(piece.size());
  }
  return OkStatus();
}

}  // namespace temper
