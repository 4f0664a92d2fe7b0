// Mamba-2: what families that call its keys alike (Granite 4, Falcon-H1) read from config.json.
#pragma once

#include <cstdint>
#include <string>

#include "format/json.h"
#include "model/decoder.h"

namespace temper {

// mamba_n_heads, mamba_n_groups, mamba_d_state, mamba_d_conv, mamba_conv_bias; mamba_d_head, which must be `width` by
// mamba_n_heads. `width`: of all heads together; `width_name` says in errors where it comes from. Refuses a
// time_step_limit that bounds steps.
Result<Mamba2Spec> ReadMamba2(const Json& config, int64_t width, const std::string& width_name, double norm_eps,
                              const std::string& where);

}  // namespace temper
