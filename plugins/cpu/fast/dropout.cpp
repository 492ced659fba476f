// SPDX-License-Identifier: Apache-2.0
#include <iterator>

#include "../../common/philox.hpp"
#include "simd/select.hpp"

namespace cpu {
namespace {

struct Dropout {
  static constexpr const char* op = ENG_OP_DROPOUT;
  static constexpr uint32_t flags = ENG_KERNEL_EXACT;
  const simd_table& simd;
  unsigned threads;
  int32_t type;
  int64_t sequences, n;
  double p;
  uint64_t seed;
  int64_t stream;

  static void check(const Call& c) {
    need_counts(c, 2, 2, 1, 1);
    need_float(c.in[0], "x");
    need_same(c.in[0], c.out[0], "x and y");
    if (c.in[1].dtype != ENG_I64) throw Error{ENG_INVALID, "counters must be i64, they are " + describe(c.in[1])};
    need_size(c.in[1], ENG_C_COUNT, "counters");
    need(c.in[0].ndim >= 1, "x must be (B, ...)");
    need(c.real("p") >= 0 && c.real("p") < 1, "p must be at least 0 and below 1");
    const int64_t stream = c.integer("stream");
    need(stream > 0 && stream < int64_t{1} << 32, "stream must be above 0 and have 32 bits");
    c.integer("seed");
    need(c.in[0].dims[0] < 1 || elements(c.in[0]) / c.in[0].dims[0] < int64_t{1} << 32,
         "one sequence has too many elements");
  }
  Dropout(const Call& c, void* device)
      : simd(simd_for(device)),
        threads(c.parallel),
        type(c.in[0].dtype),
        sequences(c.in[0].dims[0]),
        n(sequences ? elements(c.in[0]) / sequences : 0),
        p(c.real("p")),
        seed(static_cast<uint64_t>(c.integer("seed"))),
        stream(c.integer("stream")) {}
  void run(const Args& args) const {
    const int64_t* counters = args.in<int64_t>(1);
    dropout_mask d{};
    d.n = n;
    d.scale = static_cast<float>(1.0 / (1.0 - p)), d.threshold = dropout_threshold(p);
    d.seed = seed, d.stream = static_cast<uint32_t>(stream);
    d.step = static_cast<uint32_t>(counters[ENG_C_STEP]);
    d.sequence = static_cast<uint32_t>(dropout_row(counters) * sequences);
    by_type(type, [&]<class T>(T) {
      const T* x = args.in<T>(0);
      T* y = args.out<T>(0);
      in_ranges(threads, sequences * ((n + 63) / 64), 64, 1,
                [&](int64_t first, int64_t last) { simd.of<T>().dropout(d, x, y, first, last); });
    });
  }
};

}  // namespace

extern const eng_kernel* const dropout_kernels[] = {&kernel<Dropout>};
extern const uint32_t dropout_kernel_count = std::size(dropout_kernels);

}  // namespace cpu
