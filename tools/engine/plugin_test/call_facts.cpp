// SPDX-License-Identifier: Apache-2.0
// The number of forms of the calls of a standard op, and the ops that are EXACT.
#include <map>
#include <set>

#include "engine/ops_attention.h"
#include "engine/ops_parallel.h"
#include "engine/ops_softcap.h"
#include "engine/packed.h"
#include "tools/engine/plugin_test/calls.hpp"

namespace eng::plugin_test {

uint32_t forms_of(const std::string& id) {
  static const std::map<std::string, uint32_t> forms = {{ENG_OP_ROPE, 2},
                                                        {ENG_OP_ATTENTION, 2},
                                                        {ENG_OP_ATTENTION_GRAD, 2},
                                                        {ENG_OP_POSITIONS, 2},
                                                        {ENG_OP_ATTENTION_WINDOW, 2},
                                                        {ENG_OP_ATTENTION_WINDOW_GRAD, 2},
                                                        {ENG_OP_POSITIONS_GRAD, 2},
                                                        {ENG_OP_CROSS_ENTROPY, 8},
                                                        {ENG_OP_LABEL_LOGPROB, 2},
                                                        {ENG_OP_LABEL_LOGPROB_GRAD, 2},
                                                        {ENG_OP_CROSS_ENTROPY_GRAD, 8},
                                                        {ENG_OP_CAPPED_CROSS_ENTROPY, 4},
                                                        {ENG_OP_CAPPED_CROSS_ENTROPY_GRAD, 4},
                                                        {ENG_OP_VOCABULARY_LOSS, 4},
                                                        {ENG_OP_VOCABULARY_GRAD, 4}};
  const auto found = forms.find(id);
  return found == forms.end() ? 1 : found->second;
}

bool is_exact(const std::string& id) {
  static const std::set<std::string> exact = {
      ENG_OP_SCALE,   ENG_OP_CAST, ENG_OP_POSITIONS,   ENG_OP_DROPOUT,       ENG_OP_BEGIN,      ENG_OP_GET_ROW,
      ENG_OP_PUT_ROW, ENG_OP_COPY, ENG_OP_SUM_SQUARES, ENG_OP_FINISH,        ENG_OP_LOSS_SCALE, ENG_OP_SCALER,
      ENG_OP_ADAMW,   ENG_OP_SGD,  ENG_OP_FOLD,        ENG_OP_RESHAPE,       ENG_OP_TRANSPOSE,  ENG_OP_SPLIT,
      ENG_OP_CONCAT,  ENG_OP_PACK, ENG_OP_UNPACK,      ENG_OP_EMBEDDING_PART};
  return exact.count(id) > 0;
}

}  // namespace eng::plugin_test
