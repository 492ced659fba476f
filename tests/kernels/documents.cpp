// SPDX-License-Identifier: Apache-2.0
// Several documents in one sample: each gets, bit for bit, what it gets alone, on every device.
#include "documents.hpp"

#include "fast_half.hpp"

using namespace kernels_test;

namespace {

using Outputs = Device::Outputs;

constexpr int64_t query_heads = 2, key_heads = 1, head_width = 20;
const std::vector<eng_attr> head_attrs = {whole("heads", query_heads), whole("kv_heads", key_heads),
                                          real("scale", 0.3)};

struct On {
  const Device* device;
  int32_t dtype;
  std::string name;
};

// The reference device and those of the processor, with each type that they compute in.
std::vector<On> everywhere() {
  std::vector<On> all;
  for (const int32_t dtype : {ENG_F64, ENG_F32, ENG_BF16, ENG_F16}) {
    const std::string name = ", dtype " + std::to_string(dtype);
    all.push_back({&reference(), dtype, "reference" + name});
    for (const Fast& f : fast_devices())
      if (dtype != ENG_F64)
        all.push_back({f.device.get(), dtype, f.isa + ", threads " + std::to_string(f.threads) + name});
  }
  return all;
}

int32_t lse_type(int32_t dtype) {
  return dtype == ENG_F64 ? ENG_F64 : ENG_F32;
}

// q, k, v and the gradient of o.
std::vector<Tensor> attention_inputs(const Documents& d, int32_t dtype) {
  Random random(uint64_t(d.tokens()));
  const Dims wide = {d.batch(), d.tokens(), query_heads * head_width},
             narrow = {d.batch(), d.tokens(), key_heads * head_width};
  return {random_normal(random, dtype, wide), random_normal(random, dtype, narrow),
          random_normal(random, dtype, narrow), random_normal(random, dtype, wide)};
}

// o, lse, dq, dk, dv.
Outputs attend(const Device& device, const std::vector<Tensor>& x, const Tensor& segments) {
  std::vector<Tensor> in = {x[0], x[1], x[2]};
  if (segments.d.dtype) in.push_back(segments);
  const eng_desc& q = x[0].d;
  Outputs out =
      device.run(ENG_OP_ATTENTION, in, {q, desc(lse_type(q.dtype), {q.dims[0], query_heads, q.dims[1]})}, head_attrs);
  in = {x[3], x[0], x[1], x[2], out[0], out[1]};
  if (segments.d.dtype) in.push_back(segments);
  for (Tensor& t : device.run(ENG_OP_ATTENTION_GRAD, in, {q, x[1].d, x[2].d}, head_attrs)) out.push_back(t);
  return out;
}

// The results of each document alone.
std::vector<Outputs> attend_alone(const Device& device, const Documents& d, const std::vector<Tensor>& x) {
  std::vector<Outputs> out;
  d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
    std::vector<Tensor> own;
    for (const Tensor& t : x) own.push_back(part(t, b, first, n));
    out.push_back(attend(device, own, {}));
  });
  return out;
}

// The number of documents in `all` that differ from those of `alone`.
int64_t unlike(const Documents& d, const std::vector<Outputs>& alone, const Outputs& all) {
  int64_t wrong = 0;
  size_t document = 0;
  d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
    bool equal = true;
    for (size_t k = 0; k < all.size(); ++k)
      equal = equal && alone[document][k].same_bits(part(all[k], b, first, n, k == 1));
    wrong += !equal, ++document;
  });
  return wrong;
}

Tensor rotation_table(Random& random, const Dims& dims, int32_t dtype) {
  return random_normal(random, lse_type(dtype), dims);
}

}  // namespace

TEST_CASE("attention of a document in a packed sample is that of the document alone") {
  for (const On& on : everywhere())
    for (const Documents& d : packed_samples()) {
      INFO(on.name << ", T " << d.tokens());
      const auto x = attention_inputs(d, on.dtype);
      const std::vector<Outputs> alone = attend_alone(*on.device, d, x);
      CHECK(unlike(d, alone, attend(*on.device, x, d.segments())) == 0);
      // Planted faults: a border that is one token off, and none at all.
      CHECK(unlike(d, alone, attend(*on.device, x, d.moved().segments())) > 0);
      CHECK(unlike(d, alone, attend(*on.device, x, {})) > 0);
    }
}

TEST_CASE("attention of one document is attention without segments") {
  for (const On& on : everywhere())
    for (const int64_t t : {1, 65, 130}) {
      INFO(on.name << ", T " << t);
      const Documents d = {{{t}, {t}}};
      const auto x = attention_inputs(d, on.dtype);
      CHECK(same(attend(*on.device, x, d.segments()), attend(*on.device, x, {})));
    }
}

TEST_CASE("attention takes nothing from another document, not even NaN") {
  const Documents d = {{{5, 60, 70}}};
  for (const On& on : everywhere()) {
    INFO(on.name);
    auto x = attention_inputs(d, on.dtype);
    const Outputs before = attend(*on.device, x, d.segments());
    for (Tensor& t : x) poison(t, 0, 5, 60);
    const Outputs after = attend(*on.device, x, d.segments());
    for (size_t k = 0; k < after.size(); ++k) {
      CHECK(part(after[k], 0, 0, 5, k == 1).same_bits(part(before[k], 0, 0, 5, k == 1)));
      CHECK(part(after[k], 0, 65, 70, k == 1).same_bits(part(before[k], 0, 65, 70, k == 1)));
      CHECK(std::isnan(part(after[k], 0, 5, 60, k == 1).at(0)));
    }
  }
}

TEST_CASE("fast attention of documents is that of the reference, with any number of threads") {
  for (const Documents& d : packed_samples())
    for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16}) {
      INFO("T " << d.tokens());
      const auto x = attention_inputs(d, dtype);
      const Outputs want = attend(reference(), x, d.segments());
      const Case forward = {ENG_OP_ATTENTION, {x[0], x[1], x[2], d.segments()}, {want[0].d, want[1].d}, head_attrs, {}};
      const Case backward = {ENG_OP_ATTENTION_GRAD,
                             {x[3], x[0], x[1], x[2], want[0], want[1], d.segments()},
                             {want[2].d, want[3].d, want[4].d},
                             head_attrs,
                             {}};
      if (dtype == ENG_F32)
        check_close(forward, 3e-6), check_close(backward, 5e-6);
      else
        check_half(forward, 1e-5), check_half(backward, 1e-5);
      for (const char* isa : {"avx512", "avx2", "portable"}) try {
          const Device one("cpu/cpu.eng.so", "cpu", 1, isa), many("cpu/cpu.eng.so", "cpu", 9, isa);
          CHECK(same(attend(one, x, d.segments()), attend(many, x, d.segments())));
        } catch (const Failure& f) {
          if (f.status != ENG_UNSUPPORTED || std::string(isa) == "portable") throw;
        }
    }
}

TEST_CASE("rope and positions number each document from 0") {
  for (const On& on : everywhere())
    for (const Documents& d : packed_samples()) {
      INFO(on.name << ", T " << d.tokens());
      Random random(11);
      const int64_t t = d.tokens();
      const Tensor x = random_normal(random, on.dtype, {d.batch(), t, 3 * 6}),
                   angles = rotation_table(random, {t + 2, 6}, on.dtype),
                   table = random_normal(random, on.dtype, {t + 1, 3 * 6});
      const auto number = [&](const Tensor& own, const Tensor& positions) {
        Outputs out;
        for (const int64_t inverse : {0, 1}) {
          std::vector<Tensor> in = {own, angles};
          if (positions.d.dtype) in.push_back(positions);
          const std::vector<eng_attr> attrs = {whole("heads", 3), whole("inverse", inverse)};
          out.push_back(on.device->run(ENG_OP_ROPE, in, {own.d}, attrs, {{0, 0}})[0]);
          CHECK(out.back().same_bits(on.device->run(ENG_OP_ROPE, in, {own.d}, attrs)[0]));
        }
        std::vector<Tensor> in = {own, table};
        if (positions.d.dtype) in.insert(in.end(), {Tensor(), positions});
        out.push_back(on.device->run(ENG_OP_POSITIONS, in, {own.d}, {whole("offset", 1)}, {{0, 0}})[0]);
        return out;
      };
      const auto differing = [&](const Outputs& all) {
        int64_t wrong = 0;
        d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
          const Outputs alone = number(part(x, b, first, n), {});
          for (size_t k = 0; k < all.size(); ++k) wrong += !alone[k].same_bits(part(all[k], b, first, n));
        });
        return wrong;
      };
      CHECK(differing(number(x, d.positions())) == 0);
      CHECK(differing(number(x, d.moved().positions())) > 0);
      CHECK(differing(number(x, {})) > 0);
      const Documents one = {std::vector<Dims>(size_t(d.batch()), {t})};
      CHECK(same(number(x, one.positions()), number(x, {})));
    }
}

TEST_CASE("the gradient of positions goes on from document to document") {
  for (const On& on : everywhere())
    for (const Documents& d : packed_samples())
      for (const int32_t sums : {on.dtype, int32_t{ENG_F32}}) {
        if (on.dtype == ENG_F64 && sums == ENG_F32) continue;
        if (on.device == &reference() && on.dtype != ENG_F64 && d.tokens() > 150) continue;  // slow
        INFO(on.name << ", T " << d.tokens() << ", sums " << sums);
        Random random(12);
        const int64_t t = d.tokens(), width = 67;
        const Tensor dy = random_normal(random, on.dtype, {d.batch(), t, width});
        const eng_desc table = desc(sums, {t + 2, width});
        const std::vector<eng_attr> attrs = {whole("offset", 1), whole("rows", t + 2)};
        const auto gradient = [&](const Tensor& own, const Tensor& acc, const Tensor& positions) {
          std::vector<Tensor> in = {own, acc};
          if (positions.d.dtype) in.push_back(positions);
          const Outputs apart = on.device->run(ENG_OP_POSITIONS_GRAD, in, {table}, attrs);
          if (acc.d.dtype) CHECK(same(on.device->run(ENG_OP_POSITIONS_GRAD, in, {table}, attrs, {{0, 1}}), apart));
          return apart[0];
        };
        for (const Tensor& acc : {Tensor(), random_normal(random, sums, {t + 2, width})}) {
          Tensor alone = acc;
          d.each([&](int64_t b, int64_t first, int64_t n, int64_t) {
            alone = gradient(part(dy, b, first, n), alone, {});
          });
          const Tensor all = gradient(dy, acc, d.positions());
          // A sum that is not rounded on its way is the same one in both.
          const bool exact = on.device == &reference() ? on.dtype == ENG_F64 : sums == ENG_F32;
          if (exact)
            CHECK(all.same_bits(alone));
          else
            CHECK(error_of(all, alone) < (sums == ENG_F32 ? 1e-6 : 0.1));
          CHECK(error_of(gradient(dy, acc, d.moved().positions()), alone) > (exact ? 1e-3 : 0.0));
        }
        const Documents one = {std::vector<Dims>(size_t(d.batch()), {t})};
        CHECK(gradient(dy, {}, one.positions()).same_bits(gradient(dy, {}, {})));
      }
}

TEST_CASE("fast rope and positions of documents are those of the reference") {
  Random random(13);
  for (const Documents& d : packed_samples()) {
    const int64_t t = d.tokens();
    for (const int32_t dtype : {ENG_F32, ENG_BF16, ENG_F16}) {
      const Tensor x = random_normal(random, dtype, {d.batch(), t, 30}),
                   table = random_normal(random, dtype, {t + 2, 30}), angles = rotation_table(random, {t, 10}, dtype);
      check_exact({ENG_OP_POSITIONS, {x, table, Tensor(), d.positions()}, {x.d}, {whole("offset", 2)}, {{0, 0}}});
      const Case turn = {
          ENG_OP_ROPE, {x, angles, d.positions()}, {x.d}, {whole("heads", 3), whole("inverse", 0)}, {{0, 0}}};
      const std::vector<eng_attr> attrs = {whole("offset", 2), whole("rows", t + 2)};
      const Case sums = {ENG_OP_POSITIONS_GRAD, {x, table, d.positions()}, {table.d}, attrs, {{0, 1}}};
      if (dtype == ENG_F32)
        check_close(turn, 1e-6), check_close(sums, 1e-6);
      else
        check_half(turn, 1e-6), check_half(sums, 1e-6);
    }
  }
}

TEST_CASE("segments and positions of another shape, type or range are refused") {
  for (const Device* device : {&reference(), static_cast<const Device*>(fast_devices()[0].device.get())}) {
    const Tensor x(ENG_F32, {2, 3, 4}), lse(ENG_F32, {2, 1, 3}), table(ENG_F32, {4, 4}),
        counters(ENG_I64, {ENG_C_COUNT}), right(ENG_I32, {2, 3});
    const std::vector<eng_attr> heads = {whole("heads", 1), whole("kv_heads", 1), real("scale", 1)},
                                turn = {whole("heads", 1), whole("inverse", 0)}, offset = {whole("offset", 1)},
                                rows = {whole("offset", 1), whole("rows", 4)};
    for (const Tensor& wrong : {Tensor(ENG_I32, {3, 2}), Tensor(ENG_I32, {6}), Tensor(ENG_F32, {2, 3})}) {
      CHECK_THROWS_WITH(device->run(ENG_OP_ATTENTION, {x, x, x, wrong}, {x.d, lse.d}, heads),
                        Catch::Contains("segments must be (B, T) i32"));
      CHECK_THROWS_WITH(device->run(ENG_OP_ATTENTION_GRAD, {x, x, x, x, x, lse, wrong}, {x.d, x.d, x.d}, heads),
                        Catch::Contains("segments must be (B, T) i32"));
      CHECK_THROWS_WITH(device->run(ENG_OP_ROPE, {x, table, wrong}, {x.d}, turn),
                        Catch::Contains("positions must be (B, T) i32"));
      CHECK_THROWS_WITH(device->run(ENG_OP_POSITIONS, {x, table, Tensor(), wrong}, {x.d}, offset),
                        Catch::Contains("positions must be (B, T) i32"));
      CHECK_THROWS_WITH(device->run(ENG_OP_POSITIONS_GRAD, {x, Tensor(), wrong}, {table.d}, rows),
                        Catch::Contains("positions must be (B, T) i32"));
    }
    CHECK_THROWS_WITH(device->run(ENG_OP_POSITIONS, {x, table, counters, right}, {x.d}, offset),
                      Catch::Contains("counters and positions exclude each other"));
    Tensor far = right;
    far.put(4, 3);
    CHECK_NOTHROW(device->run(ENG_OP_ROPE, {x, table, far}, {x.d}, turn));
    CHECK_THROWS_WITH(device->run(ENG_OP_POSITIONS, {x, table, Tensor(), far}, {x.d}, offset),
                      Catch::Contains("position 3 of token 4 needs row 4 of a table of 4 rows"));
    CHECK_THROWS_WITH(device->run(ENG_OP_POSITIONS_GRAD, {x, Tensor(), far}, {table.d}, rows),
                      Catch::Contains("position 3 of token 4 needs row 4 of a table of 4 rows"));
    for (const int row : {4, -1}) {
      far.put(4, row);
      CHECK_THROWS_WITH(device->run(ENG_OP_ROPE, {x, table, far}, {x.d}, turn),
                        Catch::Contains("position " + std::to_string(row) + " of token 4"));
    }
  }
}
