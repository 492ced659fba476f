// SPDX-License-Identifier: Apache-2.0
#include <initializer_list>
#include <vector>

#include "ops.hpp"

namespace ops {
namespace {

struct Table {
  explicit Table(std::initializer_list<Family> families) {
    for (Family family : families)
      for (const eng_op& op : family) list.push_back(&op);
    table = {sizeof(eng_ops), static_cast<uint32_t>(list.size()), list.data()};
  }
  std::vector<const eng_op*> list;
  eng_ops table{};
};

}  // namespace

const eng_ops& standard() {
  static const Table all({activation_ops(), attention_ops(), elementwise_ops(), embedding_ops(), init_ops(),
                          layout_ops(), linear_ops(), loss_ops(), matmul_ops(), norm_ops(), optimizer_ops(),
                          packed_ops(), position_ops(), step_ops(), vocabulary_ops()});
  return all.table;
}

const eng_ops& collectives() {
  static const Table all({collective_ops(), sequence_ops()});
  return all.table;
}

}  // namespace ops
