// SPDX-License-Identifier: Apache-2.0
#include "core/execute/bound.hpp"

#include <array>

namespace eng {

Bound::Bound(const Plan& plan, Device& device, const Kernels& kernels, Communicator* comm, Host* host,
             const std::function<void()>& collectives_next)
    : Bound(plan, device, comm, host, kernels.host_memory()) {
  // A kernel that measures needs the memory of its tensors, which the arenas take next.
  for (const bool collective : {false, true}) {
    if (collective && collectives_next) collectives_next();
    for (size_t c = 0; c < calls_.size(); ++c)
      if (plan.calls[c].op->collective == collective) prepare(plan.calls[c], calls_[c], kernels);
  }
  arenas = std::make_shared<const Arenas>(plan, device, host);
  for (const Program& program : plan.programs) {
    programs.emplace_back();
    for (const Segment& segment : program.segments) {
      std::vector<BoundAction>& actions = programs.back().emplace_back(BoundSegment{&segment, {}}).actions;
      for (const Action& action : segment.actions) {
        const eng_kernel* kernel = calls_[action.call].kernel;
        const Call& call = plan.calls[action.call];
        const bool others = call.on_host || calls_[action.call].by != &device_;
        const bool on_host = others || (kernel->flags & ENG_KERNEL_HOST) || (call.op->collective && comm->on_host());
        actions.push_back({kernel, nullptr, &action, on_host, others});
        actions.back().record = bind(action, kernels);
      }
    }
  }
}

Bound::Bound(const Plan& plan, Device& device, Communicator* comm, Host* host, bool host_memory)
    : plan_(plan), device_(device), comm_(comm), host_(host), host_memory_(host_memory), calls_(plan.calls.size()) {}

Bound::~Bound() {
  for (auto& program : programs)
    for (BoundSegment& segment : program)
      for (BoundAction& one : segment.actions)
        if (one.record) one.kernel->drop_record(one.record);
  for (Prepared& p : calls_)
    if (p.state) p.kernel->drop_state(p.state);
}

void Bound::read(const View& from, uint64_t first, void* to, uint64_t bytes) {
  const Buffer& b = plan_.buffer(from.buffer);
  arenas->tier(b.arena)->read((*arenas)[b.arena], b.offset + from.offset + first, to, bytes, b.name);
}

void Bound::write(const View& to, uint64_t first, const void* from, uint64_t bytes) {
  const Buffer& b = plan_.buffer(to.buffer);
  arenas->tier(b.arena)->write((*arenas)[b.arena], b.offset + to.offset + first, from, bytes, b.name);
}

std::string Bound::of_whom(const Call& call) const {
  if (call.storage) return "tier " + plan_.arenas[call.storage].device;
  if (call.op->collective && comm_) return "communicator " + comm_->name();
  return "device " + calls_[static_cast<size_t>(&call - plan_.calls.data())].by->name();
}

std::string Bound::name(const BoundAction& one) const {
  const Call& call = plan_.calls[one.action->call];
  const std::string& block = plan_.labels[one.action->label].text();
  if (call.storage) {
    const bool write = plan_.in_storage(one.action->out[0]);
    const View& view = write ? one.action->out[0] : one.action->in[0];
    return fmt::format("{}, {} {} in {}", of_whom(call), write ? "write" : "read", plan_.buffer(view.buffer).name,
                       block);
  }
  return fmt::format("{}, {} in {}", of_whom(call), call.op->id, block);
}

std::vector<BoundSegment>& Bound::segments(const std::string& program) {
  return programs[static_cast<size_t>(&plan_.program(program) - plan_.programs.data())];
}

void Bound::prepare(const Call& call, Prepared& out, const Kernels& device_kernels) {
  const Kernels& asked = call.on_host && host_->kernels ? *host_->kernels : device_kernels;
  const bool collective = call.op->collective;
  if (collective && !comm_)
    throw Error(Exit::bug, fmt::format("{} is a collective, but there is no communicator", call.op->id));
  const Kernels& kernels = call.storage || collective ? asked : asked.serving(call);
  out.by = &device_of(call).of(kernels);
  out.kernel = call.storage ? &storage_kernel : collective ? &comm_->find(call) : &kernels.find(call);
  if (call.storage) return;
  CallArgs args(call, collective ? 1 : kernels.info().parallel, &kernels.info());
  call_plugin(Exit::environment, fmt::format("{}, {}", of_whom(call), call.op->id), out.kernel->prepare,
              collective ? comm_->self() : out.by->self(), args.get(), &out.state);
}

uint8_t* Bound::address(const View& view) const {
  const Buffer& b = plan_.buffer(view.buffer);
  if (plan_.in_storage(view)) throw Error(Exit::bug, b.name + " is in storage: it has no address");
  return static_cast<uint8_t*>((*arenas)[b.arena]) + b.offset + view.offset;
}

void* Bound::bind_storage(const Action& action) {
  const bool write = plan_.in_storage(action.out[0]);
  const View &stored = write ? action.out[0] : action.in[0], &memory = write ? action.in[0] : action.out[0];
  const Buffer& b = plan_.buffer(stored.buffer);
  return new StorageCopy{*arenas->tier(b.arena), (*arenas)[b.arena], b.offset + stored.offset,
                         address(memory),        bytes(stored.desc), write};
}

void* Bound::bind(const Action& action, const Kernels& kernels) {
  if (plan_.calls[action.call].storage) return bind_storage(action);
  const eng_device_info& info = kernels.info();
  const Prepared& call = calls_[action.call];
  const size_t n = action.in.size() + action.out.size();
  std::vector<DLTensor> tensors(n);
  std::vector<std::array<int64_t, ENG_MAX_DIMS>> strides(n);
  std::vector<const DLTensor*> args(n, nullptr);
  for (size_t k = 0; k < n; ++k) {
    const View& v = k < action.in.size() ? action.in[k] : action.out[k - action.in.size()];
    if (!v.buffer) continue;
    const eng_desc& d = v.desc;
    strides[k].fill(1);
    for (uint32_t i = d.ndim; i-- > 1;) strides[k][i - 1] = strides[k][i] * d.dims[i];
    const bool there = call.by == &device_ && arenas->memory(plan_.buffer(v.buffer).arena) == ENG_MEMORY_DEVICE;
    DLTensor& t = tensors[k] = {};
    t.data = address(v), t.dtype = dtype_dlpack(d.dtype), t.ndim = static_cast<int32_t>(d.ndim);
    t.shape = const_cast<int64_t*>(d.dims), t.strides = strides[k].data(), t.device = {kDLCPU, 0};
    if (there) t.device = {static_cast<DLDeviceType>(info.dl_device_type), info.dl_device_id};
    args[k] = &tensors[k];
  }
  void *const scratch = action.workspace.buffer ? address(action.workspace) : nullptr, *record = nullptr;
  const auto who = [&] { return name({call.kernel, nullptr, &action, false, false}); };
  call_plugin(Exit::environment, who, call.kernel->bind, call.state, args.data(), static_cast<uint32_t>(n), scratch,
              &record);
  return record;
}

}  // namespace eng
