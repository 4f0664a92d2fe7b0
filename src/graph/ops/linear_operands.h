// The places of the operands of linear (x_TI, w_OI, [x2_TR, w2_OR], [bias_O], [acc_TO]), linear_dx (d_y_TO, w_OI,
// [x2_TR, w2_RI], [acc_TI]) and linear_dw (d_y_TO, x_TI, [acc_OI]). Attributes say which of those in brackets are
// present. For the rules and for every kernel.
#pragma once

#include "graph/attributes.h"

namespace temper {

// Indices of inputs; -1: absent.
struct LinearOperands {
  int x2 = -1, w2 = -1;  // a second pair of factors, whose product is part of the sum
  int bias = -1, acc = -1;
  int num_inputs = 2;

  explicit LinearOperands(const Attributes& a) {
    if (a.Flag("pair2")) {
      x2 = num_inputs++;
      w2 = num_inputs++;
    }
    if (a.Flag("bias")) bias = num_inputs++;
    if (a.Flag("acc")) acc = num_inputs++;
  }
};

}  // namespace temper
