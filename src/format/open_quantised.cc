#include "format/open_quantised.h"

#include "format/gguf/block_tensor.h"
#include "format/group_tensor.h"
#include "format/mxfp4_tensor.h"
#include "format/nf4_tensor.h"
#include "format/row_scaled_tensor.h"
#include "format/scaled_tensor.h"

namespace temper {

Result<std::unique_ptr<QuantisedTensor>> OpenQuantised(const QuantisedTensor::Part& part,
                                                       const QuantisedTensor::FindPart& find) {
  for (const auto open : {BlockTensor::Open, Nf4Tensor::Open, Mxfp4Tensor::Open, GroupTensor::Open,
                          RowScaledTensor::Open, ScaledTensor::Open}) {
    TEMPER_ASSIGN_OR_RETURN(auto weight, open(part, find));
    if (weight != nullptr) return weight;
  }
  return std::unique_ptr<QuantisedTensor>();
}

}  // namespace temper
