#include "runtime/pinned_staging.h"

#include <algorithm>

namespace temper {

Result<std::unique_ptr<PinnedStaging>> PinnedStaging::Make(Device& device) {
  std::unique_ptr<PinnedStaging> staging(new PinnedStaging);
  TEMPER_ASSIGN_OR_RETURN(staging->memory_, Arena::Create(kBytes));
  TEMPER_RETURN_IF_ERROR(staging->memory_->PinFor(device));
  TEMPER_ASSIGN_OR_RETURN(staging->stream_, device.OpenStream());
  for (auto& event : staging->copied_) {
    TEMPER_ASSIGN_OR_RETURN(event, device.MakeEvent());
  }
  return staging;
}

PinnedStaging::~PinnedStaging() {
  if (stream_ != nullptr) (void)stream_->Synchronize();
}

std::span<std::byte> PinnedStaging::Piece(int64_t i, Bytes size) {
  const int64_t bytes = std::min(kPieceBytes.v, size.v - i * kPieceBytes.v);
  return {memory_->At({i % 2 * kPieceBytes.v}), static_cast<size_t>(bytes)};
}

Status PinnedStaging::ToDevice(Stream& store, const std::byte* from, std::byte* to, Bytes size) {
  const int64_t pieces = (size.v + kPieceBytes.v - 1) / kPieceBytes.v;
  for (int64_t i = 0; i < pieces; ++i) {
    const std::span<std::byte> piece = Piece(i, size);
    if (i >= 2) TEMPER_RETURN_IF_ERROR(copied_[static_cast<size_t>(i % 2)]->Synchronize());
    TEMPER_RETURN_IF_ERROR(store.CopyToHost(from + i * kPieceBytes.v, piece));
    const Bytes bytes{static_cast<int64_t>(piece.size())};
    TEMPER_RETURN_IF_ERROR(stream_->Copy(piece.data(), to + i * kPieceBytes.v, bytes));
    TEMPER_RETURN_IF_ERROR(stream_->Mark(*copied_[static_cast<size_t>(i % 2)]));
  }
  return stream_->Synchronize();
}

Status PinnedStaging::FromDevice(std::byte* from, Stream& store, std::byte* to, Bytes size) {
  const int64_t pieces = (size.v + kPieceBytes.v - 1) / kPieceBytes.v;
  const auto copy = [&](int64_t i) -> Status {
    const std::span<std::byte> piece = Piece(i, size);
    TEMPER_RETURN_IF_ERROR(
        stream_->Copy(from + i * kPieceBytes.v, piece.data(), Bytes{static_cast<int64_t>(piece.size())}));
    return stream_->Mark(*copied_[static_cast<size_t>(i % 2)]);
  };
  if (pieces > 0) TEMPER_RETURN_IF_ERROR(copy(0));
  for (int64_t i = 0; i < pieces; ++i) {
    if (i + 1 < pieces) TEMPER_RETURN_IF_ERROR(copy(i + 1));
    TEMPER_RETURN_IF_ERROR(copied_[static_cast<size_t>(i % 2)]->Synchronize());
    TEMPER_RETURN_IF_ERROR(store.CopyToDevice(Piece(i, size), to + i * kPieceBytes.v));
  }
  return stream_->Synchronize();
}

}  // namespace temper
