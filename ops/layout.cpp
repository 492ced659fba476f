// SPDX-License-Identifier: Apache-2.0
// eng.reshape/1, eng.transpose/1, eng.split/1 and eng.concat/1. Each is the gradient of one of them.
#include "op.hpp"
#include "ops.hpp"

namespace ops {
namespace {

constexpr uint32_t most_parts = ENG_MAX_PARTS;

const char* dim_key(uint32_t k) {
  return eng_numbered_key_(0, k);
}
const char* size_key(uint32_t k) {
  return eng_numbered_key_(1, k);
}

std::string reshape(const Call& c, Descs& out) {
  const eng_desc& x = c.in(0);
  const int64_t keep = c.i("keep"), more = c.i("ndim");
  if (keep < 0 || keep > x.ndim) return "`keep` must be at most the number of dimensions of x";
  if (more < 0 || keep + more > ENG_MAX_DIMS) return "y may have " + std::to_string(ENG_MAX_DIMS) + " dimensions";
  eng_desc y = x;
  y.ndim = static_cast<uint32_t>(keep + more);
  uint32_t open = ENG_MAX_DIMS;  // the dimension that is -1
  for (uint32_t k = 0; k < more; ++k) {
    int64_t& n = y.dims[static_cast<uint32_t>(keep) + k];
    n = c.i(dim_key(k));
    if (n > 0) continue;
    if (n != -1 || open < ENG_MAX_DIMS) return "each dimension must be positive, or one of them -1";
    open = static_cast<uint32_t>(keep) + k;
    n = 1;
  }
  if (open < ENG_MAX_DIMS && count(y) && count(x) % count(y) == 0) y.dims[open] = count(x) / count(y);
  if (count(y) != count(x))
    return "x has " + std::to_string(count(x)) + " elements, y would have " + std::to_string(count(y));
  out.push_back(y);
  return "";
}

void reshape_backward(Gradient& g) {
  if (!g.wants(0)) return;
  const eng_desc x = g.desc(g.in(0));
  const auto keep = static_cast<uint32_t>(g.i("keep"));
  Attrs attrs = {{"keep", keep, 0}, {"ndim", x.ndim - keep, 0}};
  for (uint32_t k = keep; k < x.ndim; ++k) attrs.push_back({dim_key(k - keep), x.dims[k], 0});
  g.give(0, g.emit(ENG_OP_RESHAPE, {g.d_out(0)}, attrs));
}

std::string transpose(const Call& c, Descs& out) {
  const int64_t a = c.i("a", -1), b = c.i("b", -1), n = c.in(0).ndim;
  if (a < 0 || b < 0 || a >= n || b >= n) return "a and b must be dimensions of x";
  out.push_back(c.in(0));
  std::swap(out[0].dims[a], out[0].dims[b]);
  return "";
}

void transpose_backward(Gradient& g) {
  if (g.wants(0)) g.give(0, g.emit(ENG_OP_TRANSPOSE, {g.d_out(0)}, g.attrs()));
}

std::string split(const Call& c, Descs& out) {
  const eng_desc& x = c.in(0);
  const int64_t axis = c.i("axis", -1), parts = c.i("parts");
  if (axis < 0 || axis >= x.ndim) return "`axis` must be a dimension of x";
  if (parts < 1 || parts > most_parts) return "there must be 1 to " + std::to_string(most_parts) + " parts";
  const int64_t all = x.dims[axis], equal = c.i(size_key(0)) ? 0 : all / parts;
  int64_t left = all;
  for (uint32_t k = 0; k < parts; ++k) {
    out.push_back(x);
    const int64_t n = out[k].dims[axis] = equal ? equal : c.i(size_key(k));
    if (n < 1 || n > left) return "part " + std::to_string(k) + " must have a length of 1 to " + std::to_string(left);
    left -= n;
  }
  return left ? "the parts are shorter than x by " + std::to_string(left) : "";
}

// The lengths of the parts along the axis, as attributes behind `attrs`.
Attrs with_sizes(const Gradient& g, Attrs attrs, const std::vector<eng_id>& parts, int64_t axis) {
  for (uint32_t k = 0; k < parts.size(); ++k)
    attrs.push_back({size_key(k), parts[k] ? g.desc(parts[k]).dims[axis] : g.i(size_key(k)), 0});
  return attrs;
}

void split_backward(Gradient& g) {
  if (!g.wants(0)) return;
  const int64_t axis = g.i("axis"), parts = g.i("parts");
  Ids made, gradients;
  for (uint32_t k = 0; k < parts; ++k) made.push_back(g.out(k)), gradients.push_back(g.d_out(k));
  g.give(0, g.emit(ENG_OP_CONCAT, gradients, with_sizes(g, {{"axis", axis, 0}}, made, axis)));
}

std::string concat(const Call& c, Descs& out) {
  const int64_t axis = c.i("axis", -1);
  const eng_desc* like = nullptr;
  for (uint32_t k = 0; k < c.c.n_in && !like; ++k)
    if (c.has(k)) like = &c.in(k);
  if (!like) return "one part must be there";
  if (axis < 0 || axis >= like->ndim) return "`axis` must be a dimension of the parts";
  eng_desc y = *like;
  y.dims[axis] = 0;
  for (uint32_t k = 0; k < c.c.n_in; ++k) {
    const int64_t n = c.has(k) ? c.in(k).dims[axis] : c.i(size_key(k));
    eng_desc part = *like;
    part.dims[axis] = n;
    if (c.has(k) && !same(c.in(k), part)) return "the parts must agree in all dimensions but that of `axis`";
    if (n < 1 || n > int64_t{1} << 40)
      return "part " + std::to_string(k) + " is absent: attribute " + size_key(k) + " must be its length";
    y.dims[axis] += n;
  }
  out.push_back(y);
  return "";
}

void concat_backward(Gradient& g) {
  const int64_t axis = g.i("axis");
  Ids parts;
  for (uint32_t k = 0; k < g.inputs(); ++k) parts.push_back(g.in(k));
  const auto n = static_cast<uint32_t>(parts.size());
  const Ids d = g.emit(n, ENG_OP_SPLIT, {g.d_out(0)}, with_sizes(g, {{"axis", axis, 0}, {"parts", n, 0}}, parts, axis));
  for (uint32_t k = 0; k < n; ++k)
    if (g.wants(k)) g.give(k, d[k]);
}

// Emits the op for the next positions. `kept`: the dimension of the positions stays where it is.
void layout_next(Stepping& s, const char* op, bool kept, uint32_t n_out) {
  Ids in;
  bool fixed = true;
  for (uint32_t k = 0; k < s.inputs(); ++k) {
    in.push_back(s.has(k) ? s.in(k) : 0);
    fixed = fixed && (!s.has(k) || s.fixed(k));
  }
  if (!fixed && !kept)
    throw Refused{ENG_UNSUPPORTED, std::string(op) +
                                       " moves the positions, which a running sequence has one by one: "
                                       "such a model cannot generate"};
  const Ids made = s.emit(n_out, op, in, s.attrs());
  for (uint32_t k = 0; k < n_out; ++k) s.give(k, made[k]);
}

void reshape_next(Stepping& s) {
  layout_next(s, ENG_OP_RESHAPE, s.i("keep") >= 2, 1);
}
void transpose_next(Stepping& s) {
  layout_next(s, ENG_OP_TRANSPOSE, s.i("a") != 1 && s.i("b") != 1, 1);
}
void split_next(Stepping& s) {
  layout_next(s, ENG_OP_SPLIT, s.i("axis") != 1, static_cast<uint32_t>(s.i("parts")));
}
void concat_next(Stepping& s) {
  layout_next(s, ENG_OP_CONCAT, s.i("axis") != 1, 1);
}

const eng_in_place reshape_places[] = {may_take(0, 0)};

}  // namespace

Family layout_ops() {
  static const eng_op all[] = {
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP,
       .id = ENG_OP_RESHAPE,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<reshape>,
       .grad = grad<reshape_backward>,
       .in_place = reshape_places,
       .n_in_place = 1,
       .step = step<reshape_next>},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP,
       .id = ENG_OP_TRANSPOSE,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<transpose>,
       .grad = grad<transpose_backward>,
       .step = step<transpose_next>},
      {.struct_size = sizeof(eng_op),
       .id = ENG_OP_SPLIT,
       .min_in = 1,
       .max_in = 1,
       .infer = infer<split>,
       .grad = grad<split_backward>,
       .step = step<split_next>},
      {.struct_size = sizeof(eng_op),
       .flags = ENG_OP_CHEAP,
       .id = ENG_OP_CONCAT,
       .min_in = 1,
       .max_in = most_parts,
       .infer = infer<concat>,
       .grad = grad<concat_backward>,
       .step = step<concat_next>,
       .optional = 1U << 0},
  };
  return all;
}

}  // namespace ops
