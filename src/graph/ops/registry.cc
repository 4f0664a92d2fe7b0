#include <array>

#include "graph/ops/rules.h"

namespace temper {

const OpRule& RuleOf(Op op) {
  // In the order of enum Op.
  static const std::array<const OpRule*, kNumOps> kRules = {&kEmbeddingRule,
                                                            &kLinearRule,
                                                            &kAddRule,
                                                            &kCastRule,
                                                            &kSliceRowsRule,
                                                            &kRmsNormRule,
                                                            &kLayerNormRule,
                                                            &kRopeTableRule,
                                                            &kRopeRule,
                                                            &kAttentionRule,
                                                            &kAttentionCachedRule,
                                                            &kAttentionStepRule,
                                                            &kSwigluRule,
                                                            &kReluRule,
                                                            &kGeluRule,
                                                            &kDropoutRule,
                                                            &kLinearCrossEntropyRule,
                                                            &kEmbeddingBackwardRule,
                                                            &kLinearDxRule,
                                                            &kLinearDwRule,
                                                            &kSumRowsRule,
                                                            &kRmsNormBackwardRule,
                                                            &kLayerNormBackwardRule,
                                                            &kAttentionBackwardRule,
                                                            &kAttentionStepBackwardRule,
                                                            &kSwigluBackwardRule,
                                                            &kReluBackwardRule,
                                                            &kGeluBackwardRule,
                                                            &kSumSquaresRule,
                                                            &kSumScalarsRule,
                                                            &kClipRule,
                                                            &kAdamwRule,
                                                            &kFetchRule,
                                                            &kEvictRule,
                                                            &kAllGatherRule,
                                                            &kReduceScatterRule,
                                                            &kAllReduceRule,
                                                            &kBroadcastRule,
                                                            &kShiftRule,
                                                            &kSendRule,
                                                            &kRecvRule};
  return *kRules[static_cast<size_t>(op)];
}

}  // namespace temper
