// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat against loops over all indices, for each type, on every device.
#include <functional>
#include <numeric>

#include "fast_elem.hpp"

using namespace kernels_test;

namespace layout_exact {
namespace {

// Random bytes: these kernels move any type.
Tensor bytes_of(Random& random, int32_t dtype, const Dims& dims) {
  Tensor t(dtype, dims);
  for (size_t k = 0; k < t.memory.size(); ++k) t.memory.data()[k] = static_cast<unsigned char>(random());
  return t;
}

// Calls f(index) for every element of these dimensions, in row-major order.
template <class F>
void each(const Dims& dims, F&& f) {
  Dims index(dims.size(), 0);
  const int64_t n = std::accumulate(dims.begin(), dims.end(), int64_t{1}, std::multiplies<>());
  for (int64_t k = 0; k < n; ++k) {
    f(index);
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
}

int64_t place(const Dims& dims, const Dims& index) {
  int64_t at = 0;
  for (size_t d = 0; d < dims.size(); ++d) at = at * dims[d] + index[d];
  return at;
}

void copy_element(const Tensor& from, int64_t i, Tensor& to, int64_t k) {
  const size_t size = dtype_size(from.d.dtype);
  std::memcpy(to.memory.data() + static_cast<size_t>(k) * size, from.memory.data() + static_cast<size_t>(i) * size,
              size);
}

// All devices agree with each other and with `want`.
void check(const Case& c, const std::vector<Tensor>& want) {
  check_exact(c);
  const auto got = reference().run(c.op, c.in, c.out, c.attrs);
  REQUIRE(got.size() == want.size());
  for (size_t k = 0; k < want.size(); ++k) CHECK(got[k].same_bits(want[k]));
}

const int32_t types[] = {ENG_F32, ENG_F64, ENG_BF16, ENG_F16, ENG_I32, ENG_I64, ENG_U8};

}  // namespace

TEST_CASE("transpose exchanges two dimensions") {
  Random random(5);
  for (const int32_t dtype : types)
    for (const Dims& dims : {Dims{3, 40, 2, 37}, Dims{130, 257}, Dims{1, 5, 1}, Dims{7}})
      for (size_t a = 0; a < dims.size(); ++a)
        for (size_t b = 0; b < dims.size(); ++b) {
          const Tensor x = bytes_of(random, dtype, dims);
          Dims turned = dims;
          std::swap(turned[a], turned[b]);
          Tensor y(dtype, turned);
          each(dims, [&](Dims index) {
            const int64_t from = place(dims, index);
            std::swap(index[a], index[b]);
            copy_element(x, from, y, place(turned, index));
          });
          check({ENG_OP_TRANSPOSE, {x}, {y.d}, {whole("a", int64_t(a)), whole("b", int64_t(b))}, {}}, {y});
        }
}

TEST_CASE("split divides a dimension, and concat joins it again") {
  Random random(6);
  const Dims sizes = {5, 1, 14};
  for (const int32_t dtype : types)
    for (const Dims& dims : {Dims{3, 20, 9}, Dims{20}, Dims{20, 700}, Dims{700, 20}})
      for (size_t axis = 0; axis < dims.size(); ++axis) {
        if (dims[axis] != 20) continue;
        const Tensor x = bytes_of(random, dtype, dims);
        std::vector<Tensor> parts;
        std::vector<eng_desc> descs;
        int64_t first = 0;
        for (int64_t n : sizes) {
          Dims of = dims;
          of[axis] = n;
          parts.emplace_back(dtype, of);
          descs.push_back(parts.back().d);
          each(of, [&](Dims index) {
            const int64_t to = place(of, index);
            index[axis] += first;
            copy_element(x, place(dims, index), parts.back(), to);
          });
          first += n;
        }
        std::vector<eng_attr> attrs = {whole("axis", int64_t(axis)), whole("parts", 3), whole("size0", 5),
                                       whole("size1", 1), whole("size2", 14)};
        check({ENG_OP_SPLIT, {x}, descs, attrs, {}}, parts);
        check({ENG_OP_CONCAT, parts, {x.d}, {attrs[0]}, {}}, {x});
        // An absent part is zero.
        Tensor holed = x;
        each(dims, [&](const Dims& index) {
          if (index[axis] != 5) return;
          const size_t size = dtype_size(dtype);
          std::memset(holed.memory.data() + static_cast<size_t>(place(dims, index)) * size, 0, size);
        });
        check({ENG_OP_CONCAT, {parts[0], Tensor(), parts[2]}, {x.d}, {attrs[0], whole("size1", 1)}, {}}, {holed});
      }
}

TEST_CASE("reshape keeps the bytes, in place or not") {
  Random random(7);
  for (const int32_t dtype : types) {
    const Tensor x = bytes_of(random, dtype, {3, 40, 700});
    Tensor y = x;
    y.d = desc(dtype, {3, 40, 7, 100});
    check({ENG_OP_RESHAPE, {x}, {y.d}, {}, {{0, 0}}}, {y});
  }
}

TEST_CASE("what does not fit is refused") {
  const Tensor x(ENG_F32, {4, 6}), y(ENG_F32, {6, 4}), z(ENG_F32, {4, 5}), half(ENG_BF16, {4, 6});
  const auto refused = [&](const Case& c) {
    CHECK_THROWS_AS(reference().run(c.op, c.in, c.out, c.attrs), Failure);
    for (const Fast& f : fast_devices()) CHECK_THROWS_AS(f.device->run(c.op, c.in, c.out, c.attrs), Failure);
  };
  refused({ENG_OP_RESHAPE, {x}, {z.d}, {}, {}});
  refused({ENG_OP_RESHAPE, {x}, {half.d}, {}, {}});
  refused({ENG_OP_TRANSPOSE, {x}, {x.d}, {whole("a", 0), whole("b", 1)}, {}});
  refused({ENG_OP_TRANSPOSE, {x}, {y.d}, {whole("a", 0), whole("b", 2)}, {}});
  refused({ENG_OP_SPLIT, {x}, {z.d}, {whole("axis", 1)}, {}});
  refused({ENG_OP_SPLIT, {x}, {x.d}, {whole("axis", 2)}, {}});
  refused({ENG_OP_CONCAT, {x, y}, {desc(ENG_F32, {10, 4})}, {whole("axis", 0)}, {}});
}

}  // namespace layout_exact
