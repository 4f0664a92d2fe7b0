#include "format/trained_copy.h"

namespace temper {

std::vector<StoredWeight> StoredCopies(std::span<const TrainedCopy> copies) {
  std::vector<StoredWeight> stored;
  for (const TrainedCopy& copy : copies) stored.push_back({copy.name, copy.shape, copy.source});
  return stored;
}

}  // namespace temper
