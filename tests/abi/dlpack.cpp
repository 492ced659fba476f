// SPDX-License-Identifier: Apache-2.0
#include "session/dtypes.hpp"

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

TEST_CASE("an exported tensor keeps its owner until the deleter") {
  int gone = 0;
  std::vector<float> data(6);
  auto view = matrix(data);
  view.read_only = true;
  view.owner = std::make_shared<Counted>(gone);
  DLManagedTensorVersioned* managed = eng::export_tensor(view);
  view.owner.reset();
  CHECK(managed->version.major == 1);
  CHECK(managed->flags == DLPACK_FLAG_BITMASK_READ_ONLY);
  CHECK(gone == 0);
  managed->deleter(managed);
  CHECK(gone == 1);
}
