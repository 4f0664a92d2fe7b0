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

// The first rank's, on all ranks; `own` counts there alone. `files`: the number of its paths.
Result<TokenFile> TokenFileOfFirst(const TokenFile& own, size_t files, const Ranks& ranks);

// On all ranks but the first, whose file is in its `cache`: that file, or a copy of it. On the first: without samples.
Result<Dataset> OpenOnOtherRanks(const TokenCache& cache, const std::vector<std::string>& paths, int64_t vocab,
                                 const Ranks& ranks);

}  // namespace temper
