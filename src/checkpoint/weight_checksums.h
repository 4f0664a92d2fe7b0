// Checksums of a folder's weights, verified before use, so that a bit flipped by a disk or a copy is an error.
// Checkpoints hold them in their manifest; results of runs and exports hold them in checksums.xxh3, which `xxhsum -c`
// reads. Folders with neither, such as models of the Hub, are not verified.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/env.h"

namespace temper {

using TransferCallback = std::function<void(Bytes done, Bytes total)>;

inline constexpr char kChecksumsFile[] = "checksums.xxh3";

struct FileChecksum {
  std::string name;      // in the folder
  std::string checksum;  // ChecksumHex of the whole file
};

// Writes FOLDER/checksums.xxh3. The files themselves are durable by then.
Status WriteChecksums(Env& env, const std::string& folder, const std::vector<FileChecksum>& files);

// kCorrupt, naming the file or tensor, if the weights in `folder` are not those that were written. Reads all of them;
// if `parts` processes that see the same files share the work, one in `parts` of the files or tensors. Bounded memory.
// `progress`, if set, is called as it reads with (bytes done, bytes in all). Cost: a pass over the files, some 0.15 s
// of a core per GB that is in the page cache.
Status VerifyWeights(Env& env, const std::string& folder, const TransferCallback& progress = nullptr, int part = 0,
                     int parts = 1);

}  // namespace temper
