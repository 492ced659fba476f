// SPDX-License-Identifier: Apache-2.0
// Shape rules of collectives, which a communicator runs. The builder has added attribute "members", the size of the
// group.
#include "core/trace/graph.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

using Shapes = std::span<const eng_desc>;
using Out = std::vector<eng_desc>;

std::string resized(Shapes in, int64_t n, Out& out) {
  if (in[0].ndim != 1) return "the input must be flat (one dimension)";
  return out.push_back(make_desc(in[0].dtype, {n})), "";
}

std::string all_gather(Shapes in, const Attrs& attrs, Out& out) {
  return resized(in, count(in[0]) * attrs.i("members"), out);
}

std::string all_to_all(Shapes in, const Attrs& attrs, Out& out) {
  if (count(in[0]) % attrs.i("members")) return "the members need equal parts";
  return resized(in, count(in[0]), out);
}

std::string reduce_scatter(Shapes in, const Attrs& attrs, Out& out) {
  if (count(in[0]) % attrs.i("members")) return "the members need equal parts";
  return resized(in, count(in[0]) / attrs.i("members"), out);
}

std::string unchanged(Shapes in, const Attrs&, Out& out) {
  return resized(in, count(in[0]), out);
}

Op collective(const char* id, decltype(Op::infer) infer, bool in_place) {
  Op op{id, 1, 1, std::move(infer)};
  op.collective = true;
  if (in_place) op.in_place = {{0, 0, false}};
  return op;
}

}  // namespace

std::vector<Op> collectives() {
  return {collective(ENG_OP_ALL_GATHER, all_gather, true), collective(ENG_OP_ALL_TO_ALL, all_to_all, false),
          collective(ENG_OP_BROADCAST, unchanged, true), collective(ENG_OP_REDUCE_SCATTER, reduce_scatter, false),
          collective(ENG_OP_ALL_REDUCE, unchanged, true)};
}

}  // namespace eng
