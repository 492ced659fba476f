// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "ops.hpp"

namespace ops {

const eng_ops& standard() {
  static const std::vector<const eng_op*> list = [] {
    std::vector<const eng_op*> all;
    for (Family family :
         {activation_ops(), attention_ops(), elementwise_ops(), embedding_ops(), init_ops(), layout_ops(), linear_ops(),
          loss_ops(), matmul_ops(), norm_ops(), optimizer_ops(), position_ops(), step_ops()})
      for (const eng_op& op : family) all.push_back(&op);
    return all;
  }();
  static const eng_ops table = {sizeof(eng_ops), static_cast<uint32_t>(list.size()), list.data()};
  return table;
}

}  // namespace ops
