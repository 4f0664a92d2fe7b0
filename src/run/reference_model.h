// The model that answers are compared with (dpo, kto), where it is another than that of the start: it is scored in the
// memory of the run's model, whose weights are read afterwards.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"
#include "checkpoint/training_state.h"
#include "model/initialize.h"
#include "run/opened_model.h"
#include "run/processor.h"

namespace temper {

// Opens the model and its weights, after a look at its configuration and headers. Errors: it has not the shape of
// `own`, which has the name `own_name`, or computes something else over rows of `max_seq_len` tokens. Warns of another
// tokenizer.
Result<OpenedModel> OpenReference(Env& env, const std::string& path, const OpenedModel& own,
                                  const std::string& own_name, int64_t max_seq_len);

// Puts its weights where those of the run's model belong, with adapters as they begin, which change nothing, and its
// own rows of tables in the place of trained `rows`. `here`: this rank's place on its machine.
Status LoadReference(const OpenedModel& reference, const std::vector<LoraModule>& adapters,
                     std::span<const TrainedRows> rows, const BufferLookup& buffer, const RankOfMachine& here = {});

}  // namespace temper
