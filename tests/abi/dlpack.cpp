// SPDX-License-Identifier: Apache-2.0
#include "core/tensor/dtype.hpp"

#include <catch2/catch.hpp>
#include <cstddef>
#include <vector>

#include "core/base/error.hpp"

using Catch::Matchers::Contains;

static_assert(sizeof(DLTensor) == 48 && offsetof(DLTensor, byte_offset) == 40);
static_assert(sizeof(DLManagedTensorVersioned) == 80 && offsetof(DLManagedTensorVersioned, dl_tensor) == 32);

namespace {

struct Counted {
  explicit Counted(int& n) : count(n) {}
  ~Counted() { ++count; }
  int& count;
};

eng::TensorView matrix(std::vector<float>& data) {
  eng::TensorView view;
  view.data = data.data();
  view.desc = {ENG_F32, 2, {2, 3}};
  return view;
}

// A tensor that a stranger made; `deleted` counts its deleter.
struct Foreign {
  std::vector<float> data = std::vector<float>(8);
  int64_t shape[7] = {2, 3, 0, 0, 0, 0, 0};
  int64_t strides[7] = {3, 1, 0, 0, 0, 0, 0};
  int deleted = 0;
  DLManagedTensorVersioned managed{};
  DLTensor& t = managed.dl_tensor;
  Foreign() {
    managed.version = {1, 1};
    managed.manager_ctx = this;
    managed.deleter = [](DLManagedTensorVersioned* self) { ++static_cast<Foreign*>(self->manager_ctx)->deleted; };
    t = {data.data(), {kDLCPU, 0}, 2, {kDLFloat, 32, 1}, shape, strides, 0};
  }
  // The refusal of importing it; the deleter must have run once.
  std::string refusal(bool writable = false) {
    deleted = 0;
    try {
      eng::import_tensor(&managed, {"batch", {kDLCPU, 0}, writable});
    } catch (const eng::Error& error) {
      CHECK(deleted == 1);
      CHECK_THAT(error.what(), Catch::Matchers::StartsWith("batch: "));
      return error.what();
    }
    CHECK(deleted == 1);
    return "";
  }
};

}  // namespace

TEST_CASE("an exported tensor has shape and strides") {
  std::vector<float> data(6);
  DLManagedTensorVersioned* managed = eng::export_tensor(matrix(data));
  const DLTensor& t = managed->dl_tensor;
  CHECK(t.data == data.data());
  CHECK(t.ndim == 2);
  CHECK(t.shape[1] == 3);
  CHECK(t.strides[0] == 3);
  CHECK(t.strides[1] == 1);
  CHECK(t.byte_offset == 0);
  CHECK(t.dtype.code == kDLFloat);
  managed->deleter(managed);
  DLManagedTensorVersioned* scalar = eng::export_tensor({data.data(), {ENG_I64, 0, {}}, {kDLCUDA, 3}});
  CHECK(scalar->dl_tensor.ndim == 0);
  CHECK(scalar->dl_tensor.strides != nullptr);
  CHECK(scalar->dl_tensor.device.device_id == 3);
  scalar->deleter(scalar);
}

TEST_CASE("an exported tensor keeps its owner until the deleter, and comes back the same") {
  int gone = 0;
  std::vector<float> data(6);
  auto view = matrix(data);
  view.read_only = true;
  view.owner = std::make_shared<Counted>(gone);
  DLManagedTensorVersioned* managed = eng::export_tensor(view);
  view.owner.reset();
  CHECK(managed->version.major == 1);
  CHECK(managed->flags == DLPACK_FLAG_BITMASK_READ_ONLY);
  {
    eng::TensorView back = eng::import_tensor(managed, {"weight"});
    CHECK(back.data == data.data());
    CHECK(back.read_only);
    CHECK(eng::same(back.desc, view.desc));
    auto second = back.owner;
    back.owner.reset();
    CHECK(gone == 0);
  }
  CHECK(gone == 1);
}

TEST_CASE("tensors that are accepted") {
  Foreign f;
  CHECK(f.refusal() == "");
  f.t.strides = nullptr;
  CHECK(f.refusal() == "");
  f.managed.version.minor = 99;
  f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY | DLPACK_FLAG_BITMASK_IS_COPIED;
  CHECK(f.refusal() == "");
  f.t.byte_offset = 8;
  CHECK(eng::import_tensor(&f.managed, {"batch"}).data == f.data.data() + 2);
  f.t.ndim = 0;
  f.t.shape = nullptr;
  CHECK(f.refusal() == "");
  CHECK(eng::element_count(eng::import_tensor(&f.managed, {"batch"}).desc) == 1);
  // Empty: no data, any strides.
  int64_t empty[] = {4, 0}, odd[] = {-7, 9};
  f.t = {nullptr, {kDLCPU, 0}, 2, {kDLInt, 64, 1}, empty, odd, 0};
  CHECK(f.refusal() == "");
  // A dimension of one element may have any stride.
  int64_t one[] = {2, 1, 3}, free[] = {3, 77, 1};
  f.t = {f.data.data(), {kDLCPU, 0}, 3, {kDLFloat, 32, 1}, one, free, 0};
  CHECK(f.refusal() == "");
  // No deleter is legal.
  Foreign without;
  without.managed.deleter = nullptr;
  eng::import_tensor(&without.managed, {"batch"});
  CHECK(without.deleted == 0);
}

TEST_CASE("tensors that are refused, and why") {
  const auto refused = [](auto change, bool writable = false) {
    Foreign f;
    change(f);
    return f.refusal(writable);
  };
  CHECK_THAT(refused([](auto& f) { f.managed.version.major = 2; }),
             Contains("laid out by DLPack 2.1, this engine reads 1.x"));
  CHECK_THAT(refused([](auto& f) { f.managed.flags = DLPACK_FLAG_BITMASK_READ_ONLY; }, true),
             Contains("it is read-only"));
  CHECK_THAT(refused([](auto& f) { f.t.dtype.lanes = 4; }), Contains("(code 2, 32 bits, 4 lanes) is not supported"));
  CHECK_THAT(refused([](auto& f) { f.t.dtype = {kDLBool, 8, 1}; }), Contains("is not supported"));
  CHECK_THAT(refused([](auto& f) { f.t.dtype = {kDLFloat4_e2m1fn, 4, 1}; }), Contains("is not supported"));
  CHECK_THAT(refused([](auto& f) { f.t.ndim = -1; }), Contains("it has -1 dimensions"));
  CHECK_THAT(refused([](auto& f) { f.t.ndim = 7; }), Contains("it has 7 dimensions, 0 to 6"));
  CHECK_THAT(refused([](auto& f) { f.t.shape = nullptr; }), Contains("its shape is NULL"));
  CHECK_THAT(refused([](auto& f) { f.shape[1] = -3; }), Contains("dimension 1 of a tensor is -3"));
  CHECK_THAT(refused([](auto& f) { f.shape[0] = INT64_MAX; }), Contains("more than 2^63"));
  CHECK_THAT(refused([](auto& f) { f.strides[0] = 4; }), Contains("f32 (2, 3) is not dense: stride 4 of dimension 0"));
  CHECK_THAT(refused([](auto& f) { f.strides[1] = -1; }), Contains("stride -1 of dimension 1, 1 is needed"));
  CHECK_THAT(refused([](auto& f) { f.strides[0] = 0; }), Contains("not dense"));
  CHECK_THAT(refused([](auto& f) { f.t.data = nullptr; }), Contains("has no data"));
  CHECK_THAT(refused([](auto& f) { f.t.byte_offset = 2; }), Contains("not aligned to elements of 4 bytes"));
  CHECK_THAT(refused([](auto& f) { f.t.byte_offset = ~0ull; }), Contains("is outside the address space"));
  CHECK_THAT(refused([](auto& f) { f.t.device = {kDLCUDA, 1}; }), Contains("is on DLPack device 2:1, 1:0 is needed"));
  CHECK_THROWS_WITH(eng::import_tensor(nullptr, {"batch"}), Contains("there is no tensor"));
}
