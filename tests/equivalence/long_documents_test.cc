// Rotary embeddings that go by a document's length: what shares a row with it, and how long the row is, changes
// nothing.
#include <gtest/gtest.h>

#include "../tiny_run.h"
#include "data/token_memory.h"
#include "train/trainer.h"

namespace temper::long_documents_test {
namespace {

// Documents within and beyond the 24 tokens up to which the embeddings are the usual ones.
constexpr int64_t kLengths[] = {24, 7, 25, 40, 1, 31};

TokenStore Documents() {
  MemoryTokens made;
  uint64_t n = 0;
  for (const int64_t length : kLengths) {
    std::vector<int32_t> tokens;
    while (static_cast<int64_t>(tokens.size()) < length) {
      tokens.push_back(static_cast<int32_t>(160 * UniformAt({.seed = 9}, n++)));
    }
    made.Add(tokens, std::vector<uint8_t>(tokens.size(), 1));
  }
  return made.Store();
}

double LossOf(const std::string& config, int64_t row, const std::vector<int32_t>& documents, bool packing) {
  tiny::TinyRun run({.config = config, .row = row, .micro_batches = 1});
  const TokenStore store = Documents();
  Evaluator evaluator(run.eval_executor(), store, documents, {.max_seq_len = row, .packing = packing}, nullptr);
  return tiny::Must(evaluator.Run()).loss;
}

TEST(LongDocuments, HaveTheLossOfRowsOfTheirOwnWhereTheyAreWithinPackedRows) {
  for (const std::string& config : {tiny::LongropeConfigText(), tiny::DynamicRopeConfigText()}) {
    SCOPED_TRACE(config);
    const std::vector<int32_t> all = {0, 1, 2, 3, 4, 5};
    double sum = 0, targets = 0;
    for (const int32_t document : {0, 1, 2, 3, 5}) {  // the one of a single token has no target
      const int64_t length = kLengths[document];
      sum += LossOf(config, length, {document}, false) * static_cast<double>(length - 1);
      targets += static_cast<double>(length - 1);
    }
    const double alone = sum / targets;
    EXPECT_NEAR(LossOf(config, 64, all, true), alone, 1e-6 * alone) << "packed";
    EXPECT_NEAR(LossOf(config, 64, all, false), alone, 1e-6 * alone) << "a row for each";
    EXPECT_NEAR(LossOf(config, 200, all, true), alone, 1e-6 * alone) << "all in one row";
  }
}

}  // namespace
}  // namespace temper::long_documents_test
