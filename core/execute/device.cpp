// SPDX-License-Identifier: Apache-2.0
#include "core/execute/device.hpp"

#include <algorithm>
#include <cstring>

namespace eng {
namespace {

// The first fault in a device's description; "" if there is none.
std::string wrong(const eng_device_info& info, const eng_device& table) {
  if (!std::memchr(info.name, 0, sizeof(info.name))) return "a name without its final NUL";
  const auto number = [](double x) { return x >= 0 && x <= 1e300; };
  for (const auto& [what, right] :
       {std::pair(fmt::format("parallel {}", info.parallel), info.parallel > 0),
        {fmt::format("overhead_bytes {}", info.overhead_bytes), info.overhead_bytes <= uint64_t{1} << 48},
        {fmt::format("device_overhead_bytes {}", info.device_overhead_bytes),
         info.device_overhead_bytes <= uint64_t{1} << 48},
        {fmt::format("peak_f32 {}", info.peak_f32), number(info.peak_f32)},
        {fmt::format("peak_bf16 {}", info.peak_bf16), number(info.peak_bf16)},
        {fmt::format("memory_bandwidth {}", info.memory_bandwidth), number(info.memory_bandwidth)},
        {fmt::format("to_device {}", info.to_device), number(info.to_device)},
        {fmt::format("to_host {}", info.to_host), number(info.to_host)}})
    if (!right) return what + ", which is out of range";
  const bool queues = table.queue_create && table.queue_destroy && table.event_create && table.event_destroy &&
                      table.event_record && table.event_wait,
             graphs = table.capture_begin && table.capture_end && table.graph_launch && table.graph_destroy;
  if ((info.flags & ENG_DEVICE_ASYNC) && !queues) return "flag ENG_DEVICE_ASYNC, but lacks functions for queues";
  if ((info.flags & ENG_DEVICE_GRAPHS) && !(graphs && (info.flags & ENG_DEVICE_ASYNC)))
    return "flag ENG_DEVICE_GRAPHS, but lacks functions for graphs or queues";
  if (!table.pin != !table.unpin) return "one of pin and unpin";
  return "";
}

// The device to which `device` leaves ops, by its description, and its options: as many threads as that has, else its
// defaults. "" if it leaves none.
std::pair<std::string, Section> fallback_of(const Registry& registry, const std::string& device, const Section& own) {
  const Preset& facts = registry.find(ENG_DEVICE_KIND, device)->facts;
  const std::string name = facts.count("fallback") ? std::get<std::string>(facts.at("fallback")) : "";
  if (name.empty()) return {};
  const Provided* other = registry.find(ENG_DEVICE_KIND, name);
  if (!other || other->facts.count("fallback"))
    throw fault("device {} leaves ops to device {}, which {}", device, name,
                other ? "leaves ops to another" : "no plugin provides");
  Section options = default_options(registry, name);
  const char* key = "threads";
  if (own.has(key) && options.has(key)) options.set(key, own.settings().at(key).value, "device.threads");
  return {name, options};
}

}  // namespace

Section default_options(const Registry& registry, const std::string& device) {
  std::map<std::string, Setting> all;
  for (const Option& o : registry.find(ENG_DEVICE_KIND, device)->schema.options) all[o.key] = {o.fallback, "default"};
  return {"device", std::move(all)};
}

Kernels::Kernels(Registry& registry, const std::string& device, const Section& section)
    : registry_(registry), device_(device) {
  eng_device table = registry.table<eng_device>(ENG_DEVICE_KIND, device);
  Options options(section);
  info_.struct_size = sizeof(info_);
  call_plugin(Exit::environment, "[device] " + device, table.describe, options.get(), &info_);
  if (const std::string what = wrong(info_, table); !what.empty())
    throw fault("device {} describes itself with {}", device, what);
  info_.parallel_beside = std::max(info_.parallel_beside, 1u);
  const Candidate* own = registry.providers(ENG_DEVICE_KIND, device)[0];
  if (find_in(*own, ENG_KERNELS_KIND, device)) load(*own);
  const auto [other, there] = fallback_of(registry, device, section);
  if (other.empty()) return;
  fallback_ = std::make_unique<Kernels>(registry, other, there);
  if (!host_memory() || !fallback_->host_memory())
    throw fault("device {} leaves ops to {}: both need memory of the host", device, other);
  info_.overhead_bytes += fallback_->info().overhead_bytes;
}

std::map<std::string, eng_kernel> load_kernels(const eng_kernels& list, const std::string& whose) {
  std::map<std::string, eng_kernel> out;
  for (uint32_t k = 0; k < list.count; ++k) {
    eng_kernel kernel{};
    copy_entry(list.kernels[k], kernel, fmt::format("{}: kernel {} of the list", whose, k));
    if (!kernel.op || !kernel.workspace || !kernel.prepare || !kernel.bind || !kernel.launch || !kernel.drop_record ||
        !kernel.drop_state)
      throw fault("{}: kernel {} lacks a function", whose, kernel.op ? kernel.op : "?");
    if (!out.emplace(kernel.op, kernel).second) throw fault("{}: two kernels for {}", whose, kernel.op);
  }
  return out;
}

void Kernels::load(const Candidate& from) const {
  loaded_.push_back(&from);
  const std::vector<std::string>& changed = find_in(from, ENG_KERNELS_KIND, device_)->changed_ops;
  for (const auto& [op, kernel] : load_kernels(registry_.table_of<eng_kernels>(from, ENG_KERNELS_KIND, device_),
                                               fmt::format("plugin {}, device {}", from.description.id, device_)))
    if (!std::count(changed.begin(), changed.end(), op)) kernels_[op].push_back({kernel, from.description.id, this});
}

// Adds the next plugin with kernels for this device, preferably one that the run has loaded already; with `used` only
// such a one. False if there is none.
bool Kernels::load_next(bool used) const {
  const auto loaded = registry_.loaded_providers(ENG_KERNELS_KIND);
  const Candidate* next = nullptr;
  for (const Candidate* one : registry_.providers(ENG_KERNELS_KIND, device_)) {
    if (std::count(loaded_.begin(), loaded_.end(), one)) continue;
    if (std::any_of(loaded.begin(), loaded.end(), [&](const auto& u) { return u.first == one; }))
      return load(*one), true;
    if (!next) next = one;
  }
  return !used && next && (load(*next), true);
}

const Kernels::Known& Kernels::choose(const Call& call, uint64_t* workspace) const {
  uint64_t unasked = 0, &bytes = workspace ? *workspace : unasked;
  const CallArgs args(call, info_.parallel, &info_);
  std::deque<Known>& known = kernels_[call.op->id];
  std::string answers;
  for (size_t k = 0;; ++k) {
    while (k == known.size())
      if (!load_next(k > 0)) {
        if (fallback_) return fallback_->choose(call, workspace);
        if (k == 0) throw fault("device {} has no kernel for {}", device_, call.op->id);
        throw fault("device {}, {}: {}", device_, call.op->id, answers);
      }
    Sink sink;
    const eng_status status = args.workspace(known[k].kernel, bytes, sink);
    if (status == ENG_OK) return known[k];
    // A single answer is reported as it is, several with the plugins that gave them.
    const auto by = [&](size_t who) { return fmt::format("plugin {}: ", known[who].plugin); };
    if (k == 1) answers = by(0) + answers;
    answers += (k ? "; " + by(k) : "") + sink.text(status);
    if (status != ENG_UNSUPPORTED) throw fault("device {}, {}: {}", device_, call.op->id, answers);
  }
}

uint64_t Kernels::workspace(const Call& call) const {
  uint64_t bytes = 0;
  return choose(call, &bytes), bytes;
}

CallArgs::CallArgs(const Call& call, uint32_t parallel, const eng_device_info* device)
    : attrs_(lend(call.attrs)),
      call_(make_call(call.in, call.out, attrs_, call.parallel ? call.parallel : parallel, device)) {}

eng_status CallArgs::workspace(const eng_kernel& kernel, uint64_t& bytes, Sink& sink) const {
  const eng_status status = kernel.workspace(&call_, &bytes, sink.get());
  if (status != ENG_OK || bytes <= uint64_t{1} << 48) return status;
  return report(sink.get(), ENG_INTERNAL, fmt::format("its workspace of {} bytes is above the limit of 2^48", bytes));
}

Device::Device(Registry& registry, const std::string& name, const Section& section, uint32_t local_rank)
    : name_(name), table_(registry.table<eng_device>(ENG_DEVICE_KIND, name)) {
  Options options(section);
  if (const auto [other, there] = fallback_of(registry, name, section); !other.empty())
    fallback_ = std::make_unique<Device>(registry, other, there, local_rank);
  call_plugin(Exit::environment, "[device] " + name, table_.create, options.get(), local_rank, &self_);
}

Device::~Device() {
  table_.destroy(self_);
}

void* Device::alloc(int32_t memory, uint64_t bytes) {
  void* out = nullptr;
  call_plugin(memory == ENG_MEMORY_DEVICE ? Exit::device_memory : Exit::host_memory,
              fmt::format("device {}, {} for the arena", name_, format_bytes(static_cast<double>(bytes))), table_.alloc,
              self_, memory, bytes, &out);
  if (!out || reinterpret_cast<uintptr_t>(out) % 4096) {
    if (out) free(memory, out, bytes);
    throw fault("device {}: its alloc gave {}", name_, out ? "memory that is not aligned to 4096 bytes" : "NULL");
  }
  return out;
}

void Device::upload(void* to, const void* from, uint64_t bytes) {
  call("upload", table_.upload, to, from, bytes);
}

void Device::download(void* to, const void* from, uint64_t bytes) {
  call("download", table_.download, to, from, bytes);
}

void Device::sync() {
  call("sync", table_.sync, static_cast<void*>(nullptr));
}

std::string Device::choices() {
  if (!measures()) return "";
  uint64_t size = 0;
  call("choices", table_.choices, static_cast<char*>(nullptr), uint64_t{0}, &size);
  std::string text(size, '\0');
  call("choices", table_.choices, text.data(), uint64_t{text.size()}, &size);
  text.resize(std::min<size_t>(size, text.size()));
  return text;
}

void Device::choose(const std::string& choices) {
  if (measures() && !choices.empty()) call("choose", table_.choose, choices.data(), uint64_t{choices.size()});
}

}  // namespace eng
