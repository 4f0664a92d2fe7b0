#include "compile/run/run_rates.h"

namespace temper {

RunRates RatesIn(const MemorySpec& memory) {
  return {.device = memory.rates,
          .host = memory.host_rates,
          .links = memory.links,
          .ranks = memory.ranks,
          .source = memory.rates_source};
}

void UseRates(const RunRates& rates, MemorySpec* memory) {
  memory->rates = rates.device;
  memory->host_rates = rates.host;
  memory->links = rates.links;
  memory->ranks = rates.ranks;
  memory->rates_source = rates.source;
}

}  // namespace temper
