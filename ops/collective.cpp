// SPDX-License-Identifier: Apache-2.0
// Collectives, which a communicator runs. The builder adds the attribute "members", the size of the group.
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
  };
  return all;
}

}  // namespace ops
