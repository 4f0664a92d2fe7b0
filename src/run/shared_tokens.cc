#include "run/shared_tokens.h"

#include <algorithm>
#include <span>

#include "base/mapped_file.h"

namespace temper {
namespace {

constexpr int64_t kPiece = 4 << 20;  // of a token file, for another machine

// All ranks call this at once: the first sends its token file, `mine`; ranks with a `file` write it there.
Status SendTokens(const Ranks& ranks, const MappedFile* mine, WritableFile* file) {
  Communicator& communicator = *ranks.communicator();
  int64_t size = mine ? mine->size().v : 0;
  TEMPER_RETURN_IF_ERROR(communicator.Broadcast(std::as_writable_bytes(std::span(&size, 1)), 0));
  std::vector<std::byte> buffer(static_cast<size_t>(std::min(size, kPiece)));
  Status own;
  for (int64_t done = 0; done < size;) {
    const auto piece = std::span(buffer).first(static_cast<size_t>(std::min(kPiece, size - done)));
    if (mine && own.ok()) own = mine->ReadAt(done, piece);
    TEMPER_RETURN_IF_ERROR(communicator.Broadcast(piece, 0));
    if (file && own.ok()) own = file->Append(piece);
    done += static_cast<int64_t>(piece.size());
  }
  if (file && own.ok()) own = file->Sync();
  if (file && own.ok()) own = file->Close();
  return own;
}

}  // namespace

Result<TokenFile> TokenFileOfFirst(const TokenFile& own, size_t files, const Ranks& ranks) {
  TokenFile of_first{.paths = std::vector<std::string>(files)};
  TEMPER_ASSIGN_OR_RETURN(of_first.key, ranks.FromFirst(own.key));
  for (size_t i = 0; i < files; ++i) {
    TEMPER_ASSIGN_OR_RETURN(of_first.paths[i], ranks.FromFirst(ranks.first() ? own.paths[i] : ""));
  }
  return of_first;
}

Result<Dataset> OpenOnOtherRanks(const TokenCache& cache, const std::vector<std::string>& paths, int64_t vocab,
                                 const Ranks& ranks) {
  // One rank of each machine looks for the file, or writes it; the others wait.
  const bool writes = !ranks.first() && ranks.communicator()->host_rank() == 0;
  Result<Dataset> own = Dataset();
  if (writes) own = cache.Open(TokenStore::Check::kAll, vocab, paths);
  double missing = own.ok() ? 0 : 1;
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceSum({&missing, 1}));
  if (missing > 0) {
    std::unique_ptr<MappedFile> mine;
    Status status;
    if (ranks.first()) {
      auto opened = MappedFile::Open(cache.path());
      status = opened.status();
      if (opened.ok()) mine = *std::move(opened);
    }
    TEMPER_RETURN_IF_ERROR(ranks.Agree(status));
    bool sent = false;
    if (!own.ok()) {
      status = cache.Make([&](std::unique_ptr<WritableFile> file) {
        sent = true;
        return SendTokens(ranks, nullptr, file.get());
      });
    }
    if (!sent) {
      const Status received = SendTokens(ranks, mine.get(), nullptr);
      if (status.ok()) status = received;
    }
    TEMPER_RETURN_IF_ERROR(ranks.Agree(status));
    if (!own.ok()) own = cache.Open(TokenStore::Check::kAll, vocab, paths);
  }
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  if (!ranks.first() && !writes) own = cache.Open(TokenStore::Check::kBorders, vocab, paths);
  TEMPER_RETURN_IF_ERROR(ranks.Agree(own.status()));
  return own;
}

}  // namespace temper
