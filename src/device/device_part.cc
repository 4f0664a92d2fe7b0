#include "device/device_part.h"

#include <algorithm>

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
  const View& view = to.part.view;
  const int64_t lines = view.type.shape.rank() == 0 ? 1 : view.type.shape[0];
  if (view.type.bytes() == Bytes{0}) return OkStatus();
  const int64_t line_bytes = view.type.bytes().v / lines;
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

Status HostWindow::FillWhole(const DevicePart& to, const std::function<Status(const PartView& whole)>& fill) {
  if (to.on_host()) return fill(to.part);
  const auto size = static_cast<size_t>(to.part.view.type.bytes().v);
  memory_.resize(std::max(memory_.size(), size));
  PartView whole = to.part;
  whole.view.data = memory_.data();
  TEMPER_RETURN_IF_ERROR(fill(whole));
  TEMPER_RETURN_IF_ERROR(to.stream->CopyToDevice(std::span(memory_).first(size), to.part.view.data));
  return to.stream->Synchronize();
}

Status HostWindow::Read(const DevicePart& from, const std::function<Status(std::span<const std::byte> bytes)>& take) {
  std::span<const std::byte> rest = from.part.view.raw();
  if (from.on_host()) return take(rest);
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
