// SPDX-License-Identifier: Apache-2.0
// Shape rules of collectives, which a communicator runs, and of fold, which a device runs. The builder has added
// attribute "members", the size of the group.
#include "core/trace/shapes.hpp"
#include "engine/ops.h"

namespace eng {
namespace {

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

// The flat input is `m` rows, one after the other. Attribute dtype: that of the sum; 0: that of x.
std::string fold(Shapes in, const Attrs& attrs, Out& out) {
  const int64_t m = attrs.i("rows");
  if (m < 1 || count(in[0]) % m) return "x must be m rows of equal length";
  if (std::string wrong = resized(in, count(in[0]) / m, out); !wrong.empty()) return wrong;
  const auto sum = static_cast<int32_t>(attrs.i("dtype", in[0].dtype));
  if (sum != in[0].dtype && sum != wide(in[0].dtype)) return "the sum must have the dtype of x, or be f32";
  out[0].dtype = sum;
  return "";
}

Op collective(const char* id, decltype(Op::infer) infer, bool in_place) {
  Op op{id, 1, 1, std::move(infer)};
  op.collective = true;
  if (in_place) op.in_place = {{0, 0, false}};
  return op;
}

}  // namespace

std::span<const Op> rank_ops() {
  static const Op ops[] = {
      collective(ENG_OP_ALL_GATHER, all_gather, true), collective(ENG_OP_ALL_TO_ALL, all_to_all, false),
      collective(ENG_OP_BROADCAST, unchanged, true),   collective(ENG_OP_REDUCE_SCATTER, reduce_scatter, false),
      collective(ENG_OP_ALL_REDUCE, unchanged, true),  {ENG_OP_FOLD, 1, 1, fold}};
  return ops;
}

}  // namespace eng
