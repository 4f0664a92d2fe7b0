// ProductChoices: which algorithm of a device's library computes which matrix product, so that a resumed run multiplies
// as before. An algorithm is the library's own bytes, which only the same version knows on the same device. A value.
#pragma once

#include <map>
#include <string>

namespace temper {

// By a product's shape, types, transposes and epilogue, in words: the algorithm's bytes in hexadecimal.
using ProductAlgorithms = std::map<std::string, std::string>;

struct ProductChoices {
  // By "LIBRARY VERSION on DEVICE". Ranks may have several kinds.
  std::map<std::string, ProductAlgorithms> by_maker;
};

// What Device::ChooseProducts did.
struct ProductTiming {
  std::string maker;                 // the key of ProductChoices; "": the device has nothing to choose
  int kept = 0;                      // products with the algorithm that was given
  int refused = 0;                   // products whose algorithm the library did not offer again
  int products = 0, algorithms = 0;  // that were timed
};

}  // namespace temper
