// SPDX-License-Identifier: Apache-2.0
// Moves values between ranks that hold parts of the positions of the same sequences, or of their channels: made of
// collectives and copies.
#include "engine/ops_parallel.h"
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

std::string to_channels(const Call& c, Descs& out) {
  const int64_t n = c.i("members", 1);
  eng_desc y = c.in(0);
  if (y.ndim != 3) return "x must be (B, T, C)";
  if (y.dims[2] % n) return "the members need equal numbers of channels";
  y.dims[1] *= n, y.dims[2] /= n;
  out.push_back(y);
  return "";
}

std::string to_positions(const Call& c, Descs& out) {
  const int64_t n = c.i("members", 1);
  eng_desc y = c.in(0);
  if (y.ndim != 3) return "x must be (B, T, C)";
  if (y.dims[1] % n) return "the members need equal numbers of positions";
  y.dims[1] /= n, y.dims[2] *= n;
  out.push_back(y);
  return "";
}

std::string fewer_positions(const Call& c, Descs& out) {
  eng_desc y = c.in(0);
  if (y.ndim < 2) return "x must be (B, T, ...)";
  if (y.dims[1] % c.i("members", 1)) return "the members need equal numbers of positions";
  y.dims[1] /= c.i("members", 1);
  out.push_back(y);
  return "";
}

std::string summed_positions(const Call& c, Descs& out) {
  return is_float(c.in(0).dtype) ? fewer_positions(c, out) : "x must be floating";
}

std::string all_positions(const Call& c, Descs& out) {
  eng_desc y = c.in(0);
  if (y.ndim < 2) return "x must be (B, T/N, ...)";
  y.dims[1] *= c.i("members", 1);
  out.push_back(y);
  return "";
}

std::string all_channels(const Call& c, Descs& out) {
  eng_desc y = c.in(0);
  if (y.ndim != 3) return "x must be (B, T, C)";
  y.dims[2] *= c.i("members", 1);
  out.push_back(y);
  return "";
}

std::string summed_channels(const Call& c, Descs& out) {
  const int64_t n = c.i("members", 1);
  eng_desc y = c.in(0);
  if (y.ndim != 3 || !is_float(y.dtype)) return "x must be floating, (B, T, N C)";
  if (y.dims[2] % n) return "the members need equal numbers of channels";
  y.dims[2] /= n;
  out.push_back(y);
  return "";
}

void gather_backward(Gradient& g) {
  if (g.wants(0))
    g.give(0, g.emit(g.i("sum") ? ENG_OP_SUM_TO_POSITIONS : ENG_OP_OWN_POSITIONS, {g.d_out(0)}, g.attrs()));
}

template <const char* Other>
void by(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(Other, {g.d_out(0)}, g.attrs()));
}
constexpr char channels_id[] = ENG_OP_TO_CHANNELS, positions_id[] = ENG_OP_TO_POSITIONS,
               gather_id[] = ENG_OP_GATHER_POSITIONS, gather_channels_id[] = ENG_OP_GATHER_CHANNELS,
               sum_channels_id[] = ENG_OP_SUM_TO_CHANNELS;

// Emits the parts of one use. Errors of the builder are sticky.
struct Parts {
  eng_build* b;
  const Call c;
  int64_t n = c.i("members"), batch = c.in(0).dims[0], length = c.in(0).dims[1], channels = c.in(0).dims[2];

  eng_id shaped(eng_id x, std::initializer_list<int64_t> dims) const {
    return eng_reshape(b, x, 0, dims.begin(), static_cast<uint32_t>(dims.size()));
  }
  eng_id one(const char* op, eng_id x, const Attrs& attrs) const {
    return eng_emit1(b, op, &x, 1, attrs.data(), static_cast<uint32_t>(attrs.size()));
  }
  eng_id among(const char* op, eng_id x) const {
    return one(op, shaped(x, {-1}), {{"group", c.i("group"), 0}, {"members", n, 0}});
  }
  // x (first, second, ...) with the two exchanged; a copy only if both are more than one.
  eng_id turned(eng_id x, int64_t first, int64_t second) const {
    const eng_id as = shaped(x, {first, second, -1});
    return first == 1 || second == 1 ? as : eng_transpose(b, as, 0, 1);
  }
  // Parts of positions from each member, (N, B, ...), as whole sequences; and back.
  eng_id joined(eng_id x) const { return turned(x, n, batch); }
  eng_id divided(eng_id x) const { return turned(x, batch, n); }

  eng_id to_channels(eng_id x) const {
    const eng_id mine = among(ENG_OP_ALL_TO_ALL, turned(x, batch * length, n));  // a block for each member
    return shaped(joined(mine), {batch, length * n, channels / n});
  }
  eng_id to_positions(eng_id x) const {
    const eng_id mine = among(ENG_OP_ALL_TO_ALL, divided(x));  // a block of channels from each member
    return shaped(turned(mine, n, batch * length / n), {batch, length / n, channels * n});
  }
  // x with another number of positions.
  eng_id with_length(eng_id x, int64_t positions) const {
    eng_desc y = c.in(0);
    y.dims[1] = positions;
    return eng_reshape(b, x, 0, y.dims, y.ndim);
  }
  eng_id sum_to_positions(eng_id x) const {
    const eng_id mine = among(ENG_OP_ALL_TO_ALL, divided(x));  // each member's summands for my positions
    return with_length(one(ENG_OP_FOLD, mine, {{"rows", n, 0}}), length / n);
  }
  eng_id gather_positions(eng_id x) const { return with_length(joined(among(ENG_OP_ALL_GATHER, x)), length * n); }
  eng_id gather_channels(eng_id x) const {
    return shaped(turned(among(ENG_OP_ALL_GATHER, x), n, batch * length), {batch, length, channels * n});
  }
  eng_id sum_to_channels(eng_id x) const {
    const eng_id mine = among(ENG_OP_ALL_TO_ALL, turned(x, batch * length, n));  // each member's summands
    return shaped(one(ENG_OP_FOLD, mine, {{"rows", n, 0}}), {batch, length, channels / n});
  }
  eng_id own_positions(eng_id x) const {
    eng_id parts[ENG_MAX_PARTS] = {};
    eng_split(b, x, 1, static_cast<uint32_t>(n), nullptr, parts);
    return parts[c.i("index")];
  }
};

template <eng_id (Parts::*Make)(eng_id) const>
eng_status expand(eng_build* b, const eng_call* call, const eng_id* in, eng_id* out, eng_error* error) {
  const Parts parts{b, {*call}};
  out[0] = (parts.*Make)(in[0]);
  return b->api->status(b, error);
}

template <eng_status (*Infer)(const eng_call*, eng_desc*, uint32_t, uint32_t*, eng_error*), void (*Backward)(Gradient&),
          eng_id (Parts::*Make)(eng_id) const>
constexpr eng_op moving(const char* id, uint32_t flags = 0) {
  return {.struct_size = sizeof(eng_op),
          .flags = flags,
          .id = id,
          .min_in = 1,
          .max_in = 1,
          .infer = Infer,
          .grad = grad<Backward>,
          .expand = expand<Make>};
}

}  // namespace

Family sequence_ops() {
  static const eng_op all[] = {
      moving<infer<to_channels>, by<positions_id>, &Parts::to_channels>(ENG_OP_TO_CHANNELS),
      moving<infer<to_positions>, by<channels_id>, &Parts::to_positions>(ENG_OP_TO_POSITIONS),
      moving<infer<summed_positions>, by<gather_id>, &Parts::sum_to_positions>(ENG_OP_SUM_TO_POSITIONS),
      moving<infer<all_positions>, gather_backward, &Parts::gather_positions>(ENG_OP_GATHER_POSITIONS, ENG_OP_CHEAP),
      moving<infer<fewer_positions>, by<gather_id>, &Parts::own_positions>(ENG_OP_OWN_POSITIONS),
      moving<infer<all_channels>, by<sum_channels_id>, &Parts::gather_channels>(ENG_OP_GATHER_CHANNELS, ENG_OP_CHEAP),
      moving<infer<summed_channels>, by<gather_channels_id>, &Parts::sum_to_channels>(ENG_OP_SUM_TO_CHANNELS),
  };
  return all;
}

}  // namespace ops
