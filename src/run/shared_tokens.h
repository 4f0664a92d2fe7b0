// Shared tokens: the first rank's token file, opened on all others. The ranks of a machine map one file; a machine
// whose folder does not have it gets a copy over the communicator. All ranks make these calls at the same places.
#pragma once

#include <string>
#include <vector>

#include "data/token_cache.h"
#include "run/ranks.h"

namespace temper {

// What it takes to open the token file of a data set.
struct TokenFile {
  std::string key;
  std::vector<std::string> paths;  // of the data, for messages
};

// Returns the first rank's `own` on every rank; other ranks' is not used. `files`: the number of its paths.
Result<TokenFile> TokenFileOfFirst(const TokenFile& own, size_t files, const Ranks& ranks);

// Returns the first rank's token file, or a copy of it, opened; on the first rank itself, a Dataset without samples.
Result<Dataset> OpenOnOtherRanks(const TokenCache& cache, const std::vector<std::string>& paths, int64_t vocab,
                                 const Ranks& ranks);

}  // namespace temper
