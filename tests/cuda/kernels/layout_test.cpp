// SPDX-License-Identifier: Apache-2.0
// reshape, transpose, split and concat move the bytes that the reference device moves, whatever their type.
#include "emulated.hpp"

using namespace cuda_test;

namespace {

const int32_t types[] = {ENG_F32, ENG_F64, ENG_BF16, ENG_F16, ENG_I32, ENG_I64, ENG_U8};

// Any bytes, NaNs among them.
Tensor bytes_of(Random& random, int32_t type, const Dims& dims) {
  Tensor t(type, dims);
  for (size_t k = 0; k < t.memory.size(); ++k) t.memory.data()[k] = static_cast<unsigned char>(random());
  return t;
}

void check_bits(const Use& use) {
  const Device::Outputs got = outputs(use), want = use.wanted();
  for (size_t k = 0; k < want.size(); ++k) {
    INFO(use.op << ", output " << k);
    CHECK(got[k].same_bits(want[k]));
  }
}

void check_transpose(const Tensor& x, size_t a, size_t b) {
  eng_desc y = x.d;
  std::swap(y.dims[a], y.dims[b]);
  INFO("type " << x.d.dtype << ", dimensions " << a << " and " << b);
  check_bits({ENG_OP_TRANSPOSE, {x}, {y}, {whole("a", int64_t(a)), whole("b", int64_t(b))}});
}

// Splits x and joins the parts again, also with the second one absent.
void check_parts(const Tensor& x, size_t axis, const std::vector<int64_t>& sizes) {
  static const char* const keys[] = {"size0", "size1", "size2", "size3"};
  std::vector<eng_attr> attrs = {whole("axis", int64_t(axis)), whole("parts", int64_t(sizes.size()))};
  std::vector<eng_desc> descs;
  for (size_t k = 0; k < sizes.size(); ++k) {
    attrs.push_back(whole(keys[k], sizes[k]));
    descs.push_back(x.d), descs.back().dims[axis] = sizes[k];
  }
  INFO("type " << x.d.dtype << ", dimension " << axis);
  check_bits({ENG_OP_SPLIT, {x}, descs, attrs});
  std::vector<Tensor> parts = reference().run(ENG_OP_SPLIT, {x}, descs, attrs);
  check_bits({ENG_OP_CONCAT, parts, {x.d}, {attrs[0]}});
  parts[1] = Tensor();
  check_bits({ENG_OP_CONCAT, parts, {x.d}, {attrs[0], attrs[3]}});
}

}  // namespace

TEST_CASE("emulated cuda: layout, transpose of any two dimensions") {
  Random random(71);
  for (const int32_t type : types)
    for (const Dims& dims : {Dims{3, 10, 2, 7}, Dims{2, 1, 6, 4}, Dims{5}})
      for (size_t a = 0; a < dims.size(); ++a)
        for (size_t b = 0; b < dims.size(); ++b) check_transpose(bytes_of(random, type, dims), a, b);
}

TEST_CASE("emulated cuda: layout, transpose of several tiles") {
  Random random(72);
  for (const int32_t type : {ENG_F64, ENG_F32, ENG_BF16, ENG_U8})
    for (const Dims& dims : {Dims{65, 130}, Dims{66, 134}}) check_transpose(bytes_of(random, type, dims), 0, 1);
  check_transpose(bytes_of(random, ENG_BF16, {2, 70, 3, 66}), 1, 3);
  check_transpose(bytes_of(random, ENG_F32, {40, 36, 4}), 0, 1);  // 16 bytes at once
}

TEST_CASE("emulated cuda: layout, transpose of rows") {
  Random random(73);
  check_transpose(bytes_of(random, ENG_BF16, {2, 9, 4, 64}), 1, 2);  // heads
  check_transpose(bytes_of(random, ENG_F32, {3, 5, 2, 7, 9}), 1, 3);
  check_transpose(bytes_of(random, ENG_BF16, {2, 3, 2500}), 0, 1);  // rows of more than a block
  check_transpose(bytes_of(random, ENG_F32, {4200, 2, 3}), 0, 1);   // more lines than blocks
  check_transpose(bytes_of(random, ENG_F32, {2, 600, 6}), 0, 1);    // more rows than a block takes at once
}

TEST_CASE("emulated cuda: layout, split and concat") {
  Random random(74);
  for (const int32_t type : types)
    for (const Dims& dims : {Dims{3, 20, 9}, Dims{20}, Dims{20, 300}, Dims{130, 20}})
      for (size_t axis = 0; axis < dims.size(); ++axis)
        if (dims[axis] == 20) check_parts(bytes_of(random, type, dims), axis, {5, 1, 14});
  check_parts(bytes_of(random, ENG_BF16, {5, 96}), 1, {32, 32, 32});
  check_parts(bytes_of(random, ENG_BF16, {2, 3, 2600}), 1, {1, 2});
}

TEST_CASE("emulated cuda: layout, reshape keeps the bytes, in place or not") {
  Random random(75);
  for (const int32_t type : types)
    for (const int64_t n : {1, 7, 64, 3000}) {
      const Tensor x = bytes_of(random, type, {2, n});
      const std::vector<eng_attr> attrs = {whole("keep", 0), whole("ndim", 1), whole("dim0", -1)};
      check_bits({ENG_OP_RESHAPE, {x}, {desc(type, {2 * n})}, attrs});
      check_bits({ENG_OP_RESHAPE, {x}, {desc(type, {2 * n})}, attrs, {{0, 0}}});
    }
}

TEST_CASE("emulated cuda: layout, what does not fit is refused") {
  const Tensor x(ENG_F32, {4, 6}), y(ENG_F32, {6, 4}), z(ENG_F32, {4, 5});
  const auto refused = [](const Use& use) { CHECK_THROWS_AS(outputs(use), Failure); };
  refused({ENG_OP_RESHAPE, {x}, {z.d}});
  refused({ENG_OP_TRANSPOSE, {x}, {x.d}, {whole("a", 0), whole("b", 1)}});
  refused({ENG_OP_SPLIT, {x}, {z.d}, {whole("axis", 1)}});
  refused({ENG_OP_CONCAT, {x, y}, {desc(ENG_F32, {10, 4})}, {whole("axis", 0)}});
}
