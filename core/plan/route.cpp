// SPDX-License-Identifier: Apache-2.0
#include "core/plan/route.hpp"

#include "core/tensor/dtype.hpp"
#include "engine/packed.h"

namespace eng {
namespace {

class Way {
 public:
  Way(const Plan& plan, const Where& from) : plan_(plan), at_(from) { moves.reserve(8); }
  void place(uint32_t place) {
    if (at_.place != place && !plan_.adjacent(at_.place, place)) at_.place = plan_.staging_arena, add(Axis::place);
    if (at_.place != place) at_.place = place, add(Axis::place);
  }
  void part(Id part) {
    if (at_.part != part) at_.part = part, add(Axis::part);
  }
  void dtype(int32_t dtype) {
    if (at_.dtype == dtype) return;
    place(plan_.memory_of(at_.place));
    at_.dtype = dtype, add(Axis::dtype);
  }
  // The sum over ranks, in the wider of two types.
  void sum(Id part, int32_t to) {
    at_.part = part;
    if (width(to) > width(at_.dtype)) at_.dtype = to;
    add(Axis::part);
  }
  void narrow(int32_t to) {
    if (width(to) <= width(at_.dtype)) dtype(to);
  }
  void end(const Where& to) {
    if (at_.dtype != to.dtype) place(plan_.memory_of(to.place)), dtype(to.dtype);
    place(to.place);
  }
  std::vector<Move> moves;

 private:
  // Bytes of an element; packed types are narrower than all others.
  static uint64_t width(int32_t dtype) { return eng_packed_bytes(dtype) ? 1 : dtype_size(dtype); }
  void add(Axis axis) { moves.push_back({axis, at_}); }
  const Plan& plan_;
  Where at_;
};

}  // namespace

std::vector<Move> route(const Plan& plan, const Where& from, const Where& to) {
  Way way(plan, from);
  way.narrow(to.dtype);
  if (from.part != to.part) way.place(0);
  way.part(to.part);
  way.end(to);
  return way.moves;
}

std::vector<Move> route_of_sum(const Plan& plan, const Where& from, const Where& to, int32_t dtype, bool one_rank) {
  Way way(plan, from);
  way.place(0);
  way.dtype(dtype);
  if (!one_rank) way.sum(to.part, to.dtype);
  way.narrow(to.dtype);
  way.end(to);
  return way.moves;
}

}  // namespace eng
