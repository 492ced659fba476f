// SPDX-License-Identifier: Apache-2.0
// Rotary position embedding, forward and back, also in place.
#include <iterator>

#include "../../common/documents.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

struct Rope {
  static constexpr const char* op = ENG_OP_ROPE;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t n, t, heads, d, table;  // table: its rows
  bool inverse;

  static void check(const Call& c) {
    need_counts(c, 2, 3, 1, 1);
    need_float(c.in[0], "x");
    need_f32(c.in[1], "table");
    need_same(c.in[0], c.out[0], "x and y");
    need_numbers(c, 2, c.in[0], "positions");
    const eng_desc &x = c.in[0], &table = c.in[1];
    need(x.ndim >= 2 && table.ndim == 2, "x must be (B, T, heads*D) and the table (T or more, D)");
    const int64_t heads = c.integer("heads");
    c.integer("inverse");
    if (table.dims[1] % 2 != 0) throw Error{ENG_INVALID, "D = " + std::to_string(table.dims[1]) + " is not even"};
    if (table.dims[0] < x.dims[x.ndim - 2] || heads < 1 || table.dims[1] * heads != columns(x))
      throw Error{ENG_INVALID, "x " + describe(x) + " does not fit " + std::to_string(heads) + " heads of the table " +
                                   describe(table)};
  }
  Rope(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        n(rows(c.in[0])),
        t(c.in[0].dims[c.in[0].ndim - 2]),
        heads(c.integer("heads")),
        d(c.in[1].dims[1] / 2),
        table(c.in[1].dims[0]),
        inverse(c.integer("inverse") != 0) {}
  void run(const Args& args) const {
    const int32_t* positions = args.in<int32_t>(2);
    if (positions) need_rows(positions, n, 0, table);
    by_type(type, [&]<class T>(T) {
      const rope_call<T> r{args.in<T>(0), args.in<float>(1), args.out<T>(0), heads, d, t, inverse, positions};
      in_ranges(threads, n, heads * 2 * d, 1, [&](int64_t first, int64_t last) { simd.of<T>().rope(r, first, last); });
    });
  }
};

}  // namespace

extern const eng_kernel* const rope_kernels[] = {&kernel<Rope>};
extern const uint32_t rope_kernel_count = std::size(rope_kernels);

}  // namespace cpu
