#include "run/products_of_run.h"

#include <fmt/core.h>

#include <array>
#include <chrono>
#include <nlohmann/json.hpp>

#include "base/log.h"
#include "base/quantity.h"
#include "format/json.h"

namespace temper {
namespace {

constexpr char kOtherBits[] = "results will not be bit-identical to a run that was never stopped";

void LogChosen(const ProductTiming& done, double seconds, const ProductChoices& kept) {
  if (!done.maker.empty() && !kept.by_maker.empty() && !kept.by_maker.contains(done.maker)) {
    LogWarning(fmt::format("the checkpoint's matrix products are of {}; this is {}, and they are chosen anew: {}",
                           kept.by_maker.begin()->first, done.maker, kOtherBits));
  }
  if (done.refused > 0) {
    LogWarning(fmt::format("{} no longer offers what the checkpoint says of {}, which are chosen anew: {}", done.maker,
                           Counted(done.refused, "matrix product"), kOtherBits));
  }
  if (done.algorithms > 0) {
    LogInfo(fmt::format("products    timed {} for {} in {:.1f} s", Counted(done.algorithms, "algorithm"),
                        Counted(done.products, "matrix product"), seconds));
  } else if (done.kept > 0) {
    LogInfo(fmt::format("products    {} as the checkpoint has them", Counted(done.kept, "matrix product")));
  }
}

// The counts of all ranks; the maker is this rank's.
Result<ProductTiming> SumOverRanks(const Ranks& ranks, ProductTiming own) {
  if (ranks.alone()) return own;
  std::array<double, 4> sums = {static_cast<double>(own.products), static_cast<double>(own.algorithms),
                                static_cast<double>(own.refused), static_cast<double>(own.kept)};
  TEMPER_RETURN_IF_ERROR(ranks.communicator()->AllReduceSum(sums));
  own.products = static_cast<int>(sums[0]);
  own.algorithms = static_cast<int>(sums[1]);
  own.refused = static_cast<int>(sums[2]);
  own.kept = static_cast<int>(sums[3]);
  return own;
}

}  // namespace

std::string FormatProducts(const ProductChoices& choices) {
  return DumpJson(Json(choices.by_maker), 1) + "\n";
}

Result<ProductChoices> ParseProducts(const std::string& text) {
  TEMPER_ASSIGN_OR_RETURN(const Json json, ParseJson(text, kProductsFile));
  const auto corrupt = [](const std::string& what) { return Corrupt(fmt::format("{}: {}", kProductsFile, what)); };
  if (!json.is_object()) return corrupt("it is not an object");
  ProductChoices choices;
  for (const auto& [maker, products] : json.items()) {
    if (!products.is_object()) return corrupt(fmt::format("'{}' is not an object", maker));
    ProductAlgorithms& algorithms = choices.by_maker[maker];
    for (const auto& [product, algorithm] : products.items()) {
      if (!algorithm.is_string()) return corrupt(fmt::format("the algorithm of '{}' is not text", product));
      algorithms[product] = algorithm.get<std::string>();
    }
  }
  return choices;
}

Result<ProductChoices> ChooseProductsInTurn(const Ranks& ranks, Device& device, std::span<std::byte> memory,
                                            const ProductChoices& kept) {
  const auto begin = std::chrono::steady_clock::now();
  ProductChoices choices = kept;
  Result<ProductTiming> done = ProductTiming();
  for (int turn = 0; turn < ranks.size(); ++turn) {
    if (turn == ranks.rank()) done = device.ChooseProducts(memory, &choices);
    TEMPER_RETURN_IF_ERROR(ranks.Agree(done.status()));
    if (ranks.alone()) break;
    TEMPER_ASSIGN_OR_RETURN(const std::string text, ranks.From(turn, FormatProducts(choices)));
    TEMPER_ASSIGN_OR_RETURN(choices, ParseProducts(text));
  }
  TEMPER_ASSIGN_OR_RETURN(const ProductTiming all, SumOverRanks(ranks, *done));
  LogChosen(all, std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count(), kept);
  return choices;
}

}  // namespace temper
