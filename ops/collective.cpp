// SPDX-License-Identifier: Apache-2.0
// Collectives, which a communicator runs, and the sum over a group, which is made of them. The builder adds the
// attribute "members", the size of the group.
#include "engine/ops_parallel.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string resized(const Call& c, int64_t n, Descs& out) {
  if (c.in(0).ndim != 1) return "the input must be flat (one dimension)";
  out.push_back(make_desc(c.in(0).dtype, {n}));
  return "";
}

std::string unchanged(const Call& c, Descs& out) {
  return resized(c, count(c.in(0)), out);
}

std::string all_gather(const Call& c, Descs& out) {
  return resized(c, count(c.in(0)) * c.i("members", 1), out);
}

std::string all_to_all(const Call& c, Descs& out) {
  return count(c.in(0)) % c.i("members", 1) ? "the members need equal parts" : unchanged(c, out);
}

std::string reduce_scatter(const Call& c, Descs& out) {
  if (count(c.in(0)) % c.i("members", 1)) return "the members need equal parts";
  return resized(c, count(c.in(0)) / c.i("members", 1), out);
}

std::string group_sum(const Call& c, Descs& out) {
  if (!is_float(c.in(0).dtype)) return "x must be floating";
  if (count(c.in(0)) % c.i("members", 1)) return "the members need equal parts";
  return as_inputs<0>(c, out);
}

void group_sum_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.d_out(0));
}

// Errors of the builder are sticky.
eng_id emitted(eng_build* b, const char* op, eng_id x, const Attrs& attrs) {
  eng_id out = 0;
  b->api->emit(b, op, &x, 1, &out, 1, attrs.data(), static_cast<uint32_t>(attrs.size()), nullptr);
  return out;
}

eng_status group_sum_expand(eng_build* b, const eng_call* call, const eng_id* in, eng_id* out, eng_error* error) {
  const Call c{*call};
  const Attrs group = {{"group", c.i("group"), 0}, {"members", c.i("members"), 0}};
  const int64_t all[] = {-1};
  const eng_desc& x = c.in(0);
  eng_id y = emitted(b, ENG_OP_ALL_TO_ALL, eng_reshape(b, in[0], 0, all, 1), group);
  y = emitted(b, ENG_OP_FOLD, y, {{"rows", c.i("members"), 0}});
  out[0] = eng_reshape(b, emitted(b, ENG_OP_ALL_GATHER, y, group), 0, x.dims, x.ndim);
  return b->api->status(b, error);
}

const eng_in_place places[] = {may_take(0, 0)};

template <eng_status (*Infer)(const eng_call*, eng_desc*, uint32_t, uint32_t*, eng_error*)>
constexpr eng_op collective(const char* id, bool in_place) {
  return {.struct_size = sizeof(eng_op),
          .id = id,
          .min_in = 1,
          .max_in = 1,
          .infer = Infer,
          .in_place = in_place ? places : nullptr,
          .n_in_place = in_place};
}

}  // namespace

Family collective_ops() {
  static const eng_op all[] = {
      collective<infer<all_gather>>(ENG_OP_ALL_GATHER, true),
      collective<infer<all_to_all>>(ENG_OP_ALL_TO_ALL, false),
      collective<infer<unchanged>>(ENG_OP_BROADCAST, true),
      collective<infer<reduce_scatter>>(ENG_OP_REDUCE_SCATTER, false),
      collective<infer<unchanged>>(ENG_OP_ALL_REDUCE, true),
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_GROUP_SUM,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<group_sum>,
       .grad = grad<group_sum_backward>,
       .expand = group_sum_expand},
  };
  return all;
}

}  // namespace ops
