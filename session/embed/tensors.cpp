// SPDX-License-Identifier: Apache-2.0
// A session's tensors: found by name, lent in place, copied, gathered from their parts, and written.
#include <algorithm>
#include <cstring>
#include <new>

#include "session/checkpoint/convert.hpp"
#include "session/config/spelling.hpp"
#include "session/dtypes.hpp"
#include "session/embed/lent.hpp"

namespace eng {
namespace {

constexpr uint64_t tile = uint64_t{1} << 20;  // bytes that ranks exchange at a time
constexpr std::align_val_t aligned{64};

std::shared_ptr<char> memory(uint64_t bytes) {
  return {static_cast<char*>(::operator new(std::max<uint64_t>(bytes, 1), aligned)),
          [](char* p) { ::operator delete(p, aligned); }};
}

// n elements in the tensor's type. f64 comes from callers alone.
void converted(const std::vector<char>& raw, int32_t from, int32_t to, void* out, uint64_t n) {
  if (from == ENG_F64 && to != ENG_F64) {
    std::vector<float> narrow(n);
    for (uint64_t k = 0; k < n; ++k) narrow[k] = static_cast<float>(reinterpret_cast<const double*>(raw.data())[k]);
    convert(ENG_F32, narrow.data(), to, out, n);
  } else {
    convert(from, raw.data(), to, out, n);
  }
}

bool exact(int32_t from, int32_t to) {
  return from == to || (to == ENG_F32 && (from == ENG_BF16 || from == ENG_F16));
}

bool narrow_float(int32_t dtype) {
  return dtype == ENG_F32 || dtype == ENG_BF16 || dtype == ENG_F16;
}

bool rounds(int32_t from, int32_t to) {
  return narrow_float(to) && (narrow_float(from) || from == ENG_F64);
}

}  // namespace

std::vector<TensorShare> tensors_of(const Plan& plan) {
  std::vector<TensorShare> out;
  for (const Tensor& t : plan.tensors) {
    const auto id = static_cast<uint32_t>(&t - plan.tensors.data());
    out.push_back({{t.name, t.role, t.desc.dtype, {t.desc.dims, t.desc.dims + t.desc.ndim}, id}});
  }
  return out;
}

Embedded::Place Embedded::place(const View& view) const {
  const Plan& plan = opening_->setup.plan;
  if (plan.in_storage(view)) return {};
  const bool host = plan.in_host_arena(view) || opening_->setup.kernels->host_memory();
  return {opening_->trainer->executor().address(view), host ? DLDevice{kDLCPU, 0} : device()};
}

const Tensor& Embedded::find(const std::string& name, const std::string& role) const {
  const Plan& plan = opening_->setup.plan;
  if (const Tensor* found = plan.find(name, role)) return *found;
  std::vector<std::string> names, roles;
  for (const Tensor& t : plan.tensors) {
    if (t.role == role) names.push_back(t.name);
    if (t.name == name) roles.push_back(t.role);
  }
  if (role == ENG_TENSOR_GRADIENT && names.empty())
    throw Unsupported("this session keeps no gradients",
                      "open it with ENG_SESSION_GRADIENTS (gradients=True): they then have memory of their own");
  const std::vector<std::string> near = nearest(name, names);
  if (role == ENG_TENSOR_ACTIVATION && near.empty())
    throw Unsupported(fmt::format("the activation `{}` has no memory that lasts beyond the step", name),
                      "name it when the session is opened: eng_session_request.activations (activations=[...]); the "
                      "logits are there with ENG_SESSION_LOGITS (logits=True)");
  throw NotFound(fmt::format("there is no {} `{}`", role, name),
                 !roles.empty()  ? fmt::format("it has the roles {}", fmt::join(roles, ", "))
                 : !near.empty() ? fmt::format("did you mean `{}`?", fmt::join(near, "` or `"))
                                 : "");
}

eng_tensor_info Embedded::tensor(uint64_t index) const {
  if (!started()) throw Error(Exit::usage, "the session is not started: it has no tensors");
  const Plan& plan = opening_->setup.plan;
  if (index >= plan.tensors.size())
    throw NotFound(fmt::format("there is no tensor {}: there are {}", index, plan.tensors.size()));
  const Tensor& t = plan.tensors[index];
  eng_tensor_info out{};
  out.struct_size = sizeof(out);
  out.name = t.name.c_str(), out.role = t.role.c_str(), out.desc = t.desc;
  out.ranges = t.ranges.size();
  bool addressable = !t.packed;
  for (const HeldRange& r : t.ranges) addressable = addressable && place(r.view).data;
  if (!t.ranges.empty()) out.first = t.ranges[0].first, out.count = t.ranges[0].count;
  const bool whole = out.ranges == 1 && out.count == element_count(t.desc);
  out.flags = (whole ? ENG_TENSOR_WHOLE : 0) | (addressable ? ENG_TENSOR_ADDRESSABLE : 0);
  return out;
}

// Computed values are read-only: a write would be lost without an error.
DLManagedTensorVersioned* Embedded::lend(const Tensor& tensor, const eng_desc& desc, const Place& at, bool writable) {
  struct Out {
    std::shared_ptr<const Lent> memory;
  };
  auto out = std::make_shared<Out>(Out{lent_});
  writable = writable && is_saved(tensor);
  if (writable) writable_.emplace_back(out);
  return export_tensor({at.data, desc, at.device, !writable, out});
}

DLManagedTensorVersioned* Embedded::take(const std::string& name, const std::string& role, uint32_t flags) {
  need_started();
  constexpr uint32_t all = ENG_TAKE_WRITABLE | ENG_TAKE_COPY | ENG_TAKE_PART;
  if (flags & ~all) throw Error(Exit::usage, fmt::format("flags {:#x} are unknown", flags & ~all));
  const Tensor& t = find(name, role);
  const std::string what = fmt::format("{} `{}`", role, name);
  if (flags & ENG_TAKE_COPY && flags & ENG_TAKE_PART)
    throw Unsupported(what + ": a copy is of the whole tensor", "take the part in place, or the copy");
  if (flags & ENG_TAKE_COPY) return copy_of(t);
  const auto part = [&](const std::string& why) {
    return Unsupported(fmt::format("{} {}", what, why),
                       "take a copy of the whole (ENG_TAKE_COPY, copy=True), which all ranks must do together");
  };
  const bool none = t.ranges.empty() && flags & ENG_TAKE_PART;
  if (none) return lend(t, {t.desc.dtype, 1, {0}}, {nullptr, device()}, flags & ENG_TAKE_WRITABLE);
  if (t.ranges.size() != 1) throw part(fmt::format("lies in {} ranges on this rank", t.ranges.size()));
  if (t.packed) throw part("is packed: its elements have no address");
  const HeldRange& range = t.ranges[0];
  const bool whole = range.count == element_count(t.desc);
  if (!whole && !(flags & ENG_TAKE_PART))
    throw part(fmt::format("lies in parts: this rank holds elements {} to {}", range.first, range.first + range.count));
  const Place at = place(range.view);
  if (!at.data) throw part("lies in files of a tier: it has no address");
  eng_desc desc = t.desc;
  if (flags & ENG_TAKE_PART) desc = {t.desc.dtype, 1, {static_cast<int64_t>(range.count)}};
  return lend(t, desc, at, flags & ENG_TAKE_WRITABLE);
}

DLManagedTensorVersioned* Embedded::copy_of(const Tensor& t) {
  const Turn turn(Turn::For::setup);
  const auto copy = memory(byte_count(t.desc));
  gather(t, 0, element_count(t.desc), copy.get());
  auto* out = export_tensor({copy.get(), t.desc, {kDLCPU, 0}, false, copy});
  out->flags |= DLPACK_FLAG_BITMASK_IS_COPIED;
  return out;
}

void Embedded::gather(const Tensor& t, uint64_t first, uint64_t n, char* to) {
  opening_->trainer->gather(tensors_[static_cast<size_t>(&t - opening_->setup.plan.tensors.data())], first, n, to);
}

void Embedded::write(const std::string& name, const std::string& role, const eng_tensor_in& given, uint32_t flags) {
  const Incoming value(given, fmt::format("the value of `{}`", name));
  need_started();
  if (flags & ~ENG_WRITE_ROUND) throw Error(Exit::usage, fmt::format("flags {:#x} are unknown", flags));
  if (role == ENG_TENSOR_GRADIENT || role == ENG_TENSOR_ACTIVATION)
    throw Unsupported(fmt::format("{}s are computed by a step: they cannot be written", role));
  const Tensor& t = find(name, role);
  const std::vector<int64_t> shape(t.desc.dims, t.desc.dims + t.desc.ndim);
  if (value.shape() != shape)
    throw Error(Exit::usage,
                fmt::format("{} is {}, `{}` is {}", value.what(), value.text(), name, eng::describe(t.desc)));
  const auto from = dtype_from_dlpack(value.type());
  const int32_t to = t.desc.dtype;
  if (!from || !(exact(*from, to) || (rounds(*from, to) && flags & ENG_WRITE_ROUND)))
    throw Unsupported(fmt::format("{} is {}, `{}` is {}", value.what(), value.text(), name, eng::describe(t.desc)),
                      from && rounds(*from, to) ? "allow rounding (ENG_WRITE_ROUND, round=True), or convert it first"
                                                : "convert it first");
  const Turn turn(Turn::For::setup);
  const TensorShare& spec = tensors_[static_cast<size_t>(&t - opening_->setup.plan.tensors.data())];
  const Fill fill = opening_->trainer->fill();
  const uint64_t most = tile / 8, size = dtype_size(to);
  std::vector<char> raw, ready(most * size);
  sound([&] {
    for (const HeldRange& r : t.ranges)
      for (uint64_t at = r.first; at < r.first + r.count; at += most) {
        const uint64_t n = std::min(most, r.first + r.count - at);
        raw.resize(n * value.size());
        value.read(at, n, raw.data(), device(), from_device());
        converted(raw, *from, to, ready.data(), n);
        fill(spec, at, n, ready.data());
      }
    written_ = true;
  });
}

}  // namespace eng
