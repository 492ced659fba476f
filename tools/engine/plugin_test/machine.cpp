// SPDX-License-Identifier: Apache-2.0
#include "tools/engine/plugin_test/machine.hpp"

#include <algorithm>
#include <array>

namespace eng::plugin_test {
namespace {

struct Prepared {
  const eng_kernel& kernel;
  void *state = nullptr, *record = nullptr;
  ~Prepared() {
    if (record) kernel.drop_record(record);
    if (state) kernel.drop_state(state);
  }
};

}  // namespace

Stage::~Stage() {
  for (const auto& [at, bytes] : rooms_) device_->free(ENG_MEMORY_DEVICE, at, bytes);
}

uint8_t* Stage::send(Bytes& bytes) {
  if (!device_) return bytes.data();
  const uint64_t all = bytes.size() + 2 * Bytes::guard;
  auto* at = static_cast<uint8_t*>(device_->alloc(ENG_MEMORY_DEVICE, all));
  rooms_.emplace_back(at, all);
  device_->upload(at, bytes.data() - Bytes::guard, all);
  return at + Bytes::guard;
}

void Stage::fetch(Bytes& bytes, const uint8_t* at) {
  if (device_) device_->download(bytes.data() - Bytes::guard, at - Bytes::guard, bytes.size() + 2 * Bytes::guard);
}

Machine::Machine(Registry& registry, const std::string& device, const Section& options, uint32_t local_rank)
    : kernels_(registry, device, options), device_(registry, device, options, local_rank) {
  if (info().flags & ENG_DEVICE_ASYNC) device_.call("queue_create", device_.table().queue_create, &queue_);
}

Machine::~Machine() {
  if (queue_) device_.table().queue_destroy(device_.self(), queue_);
}

bool Machine::serves(const Call& call) const {
  try {
    kernels_.find(call);
    return true;
  } catch (const Error&) {
    return false;
  }
}

std::vector<Array> Machine::run(const Call& call, const std::vector<Array>& given, const How& how,
                                const eng_kernel* kernel) {
  const Kernels& kernels = kernel ? kernels_ : kernels_.serving(call);
  const eng_kernel& k = kernel ? *kernel : kernels.find(call);
  const bool apart = !kernels_.host_memory() && !(k.flags & ENG_KERNEL_HOST);
  std::vector<Array> in = given, out;
  for (const eng_desc& d : call.out) out.emplace_back(d, how.fill);
  std::vector<const InPlace*> taken(out.size(), nullptr);
  for (const InPlace& pair : how.in_place)
    if (pair.out < out.size() && pair.in < in.size() && in[pair.in].desc.dtype && !taken[pair.out]) {
      taken[pair.out] = &pair;
      out[pair.out].bytes = in[pair.in].bytes;
    }
  Call used = call;
  if (how.parallel) used.parallel = how.parallel;
  const CallArgs args(used, kernels.info().parallel, &kernels.info());
  Sink sink;
  uint64_t scratch_bytes = 0, again = 0;
  const auto where = [&] { return "device " + name() + ", " + call.op->id; };
  sink.check(args.workspace(k, scratch_bytes, sink), Exit::environment, where);
  sink.check(args.workspace(k, again, sink), Exit::environment, where);
  if (again != scratch_bytes)
    throw Broken(fmt::format("{}: workspace gives {} bytes, and then {} for the same call", text_of(call),
                             scratch_bytes, again));
  need(scratch_bytes <= uint64_t{1} << 32, "{}: it wants {} bytes of scratch", text_of(call), scratch_bytes);
  Bytes scratch(scratch_bytes, how.fill);

  Stage stage(apart ? &device_ : nullptr);
  const size_t n = in.size() + out.size();
  std::vector<DLTensor> tensors(n);
  std::vector<std::array<int64_t, ENG_MAX_DIMS>> strides(n);
  std::vector<const DLTensor*> views(n, nullptr);
  std::vector<uint8_t*> at(n, nullptr);
  for (size_t a = n; a-- > 0;) {  // outputs first: inputs may lie in them
    Array& array = a < in.size() ? in[a] : out[a - in.size()];
    if (!array.desc.dtype) continue;
    for (size_t o = 0; a < in.size() && o < out.size(); ++o)
      if (taken[o] && taken[o]->in == a) at[a] = at[in.size() + o];
    if (!at[a]) at[a] = stage.send(array.bytes);
    const eng_desc& d = array.desc;
    strides[a].fill(1);
    for (uint32_t i = d.ndim; i-- > 1;) strides[a][i - 1] = strides[a][i] * d.dims[i];
    tensors[a] = {at[a],
                  {apart ? static_cast<DLDeviceType>(info().dl_device_type) : kDLCPU, apart ? info().dl_device_id : 0},
                  static_cast<int32_t>(d.ndim),
                  dtype_dlpack(d.dtype),
                  const_cast<int64_t*>(d.dims),
                  strides[a].data(),
                  0};
    views[a] = &tensors[a];
  }
  uint8_t* const scratch_at = scratch_bytes ? stage.send(scratch) : nullptr;

  Prepared prepared{k};
  void* const self = device_.of(kernels).self();
  sink.check(k.prepare(self, args.get(), &prepared.state, sink.get()), Exit::environment, where);
  sink.check(k.bind(prepared.state, views.data(), static_cast<uint32_t>(n), scratch_at, &prepared.record, sink.get()),
             Exit::environment, where);
  const eng_exec exec = {sizeof(eng_exec), 0, &kernels == &kernels_ ? queue_ : nullptr};
  for (int time = 0; time < (how.twice ? 2 : 1); ++time) {
    sink.check(k.launch(prepared.record, &exec, sink.get()), Exit::environment, where);
    device_.sync();
  }

  const auto look = [&](const Bytes& bytes, const std::string& what) {
    if (const std::string where_to = bytes.touched(); !where_to.empty())
      throw Broken(fmt::format("{}: it wrote {} of {}", text_of(call), where_to, what));
  };
  if (scratch_bytes) {
    stage.fetch(scratch, scratch_at);
    look(scratch, fmt::format("its scratch of {} bytes", scratch_bytes));
  }
  for (size_t o = 0; o < out.size(); ++o) {
    if (!out[o].desc.dtype) continue;
    stage.fetch(out[o].bytes, at[in.size() + o]);
    look(out[o].bytes, fmt::format("output {}", o));
  }
  for (size_t i = 0; i < in.size(); ++i) {
    const auto is_taken = [&](const InPlace* pair) { return pair && pair->in == i; };
    if (!in[i].desc.dtype || std::any_of(taken.begin(), taken.end(), is_taken)) continue;
    stage.fetch(in[i].bytes, at[i]);
    look(in[i].bytes, fmt::format("input {}", i));
    if (!(in[i].bytes == given[i].bytes))
      throw Broken(fmt::format("{}: it changes input {}: {}", text_of(call), i, first_difference(given[i], in[i])));
  }
  return out;
}

Call make_call(const Op& op, const std::vector<Array>& in, const Attrs& attrs) {
  Call call;
  call.op = &op;
  for (const Array& one : in) call.in.push_back(one.desc);
  call.attrs = attrs;
  const std::string wrong = infer(op, call.in, attrs, call.out);
  if (!wrong.empty()) throw Broken(fmt::format("{}: infer refuses {}: {}", op.id, dims_of(call.in), wrong));
  return call;
}

std::string text_of(const Call& call) {
  std::string out = fmt::format("{} in {}", call.op->id, dims_of(call.in));
  for (const Attr& a : call.attrs.list)
    out += a.f != 0 ? fmt::format(", {} {:g}", a.key, a.f) : fmt::format(", {} {}", a.key, a.i);
  if (call.parallel) out += fmt::format(", {} threads", call.parallel);
  return out;
}

}  // namespace eng::plugin_test
