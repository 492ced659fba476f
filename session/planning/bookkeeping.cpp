// SPDX-License-Identifier: Apache-2.0
#include "session/planning/bookkeeping.hpp"

#include <link.h>
#include <malloc.h>
#include <sys/resource.h>

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <fstream>
#include <set>

#include "core/tensor/dtype.hpp"
#include "engine/ops_step.h"

namespace eng {
namespace {

// Measured on x86-64 with glibc and the device cpu, until the process ends: fitted to runs of 1 to 96 layers on one
// rank, and to random compositions on 2 to 8 ranks with 60 to 3,900 collectives. The executor and the kernels keep
// records of the actions, which grow with the lists of the plan, but for the ranges of tensors.
constexpr uint64_t executed(uint64_t lists) {
  return lists * 55 / 100;
}
// Bytes of a tensor in the tables of a checkpoint while it is saved, whatever its ranges are; while it is only read,
// also of each letter of its name, which occurs in many of them.
constexpr uint64_t saved_tensor = 1050, read_tensor = 1750, letter = 25;
// The communicator's bookkeeping for a collective, and for each message of it that this rank sends or receives, which
// stays ready. Open MPI 4.1 itself takes 900 bytes for a message that is sent and 780 for one that is received, as well
// with 20,000 of them. `further_rank`: what it shares with each rank of the same machine beyond the second.
constexpr uint64_t collective = 150, message = 950, further_rank = 115000;
// For a collective of a device with memory of its own, whose library has its own ways.
constexpr uint64_t collective_of_device = 1400;

// The size of an allocation in the heap: a word more, in steps of 16.
uint64_t allocated(uint64_t bytes) {
  return bytes == 0 ? 0 : std::max<uint64_t>(32, (bytes + 8 + 15) / 16 * 16);
}
// Pages of a long list that were never written take no memory.
template <class Item>
uint64_t of(const std::vector<Item>& list) {
  const uint64_t written = list.size() * sizeof(Item), all = list.capacity() * sizeof(Item);
  return allocated(std::min(all, (written + 4095) / 4096 * 4096));
}
uint64_t of(const std::string& text) {
  return text.capacity() > std::string().capacity() ? allocated(text.capacity() + 1) : 0;
}
uint64_t of(const Attrs& attrs) {
  uint64_t bytes = of(attrs.list);
  for (const Attr& a : attrs.list) bytes += of(a.key);
  return bytes;
}

uint64_t ranges_of(const Plan& plan) {
  uint64_t bytes = 0;
  for (const Tensor& t : plan.tensors) bytes += of(t.ranges);
  return bytes;
}

// Without the ranges of tensors.
uint64_t lists_of(const Plan& plan) {
  uint64_t bytes = of(plan.buffers) + of(plan.calls) + of(plan.labels) + of(plan.units) + of(plan.tensors);
  for (const Buffer& b : plan.buffers) bytes += of(b.name);
  for (const Call& c : plan.calls) bytes += of(c.in) + of(c.out) + of(c.attrs);
  for (const Label& l : plan.labels) bytes += of(l.of);
  for (const Unit& u : plan.units) bytes += of(u.name) + of(u.params);
  for (const Tensor& t : plan.tensors) bytes += of(t.name) + of(t.role);
  for (const Program& p : plan.programs)
    for (const Segment& s : p.segments) {
      bytes += of(s.actions);
      for (const Action& a : s.actions) bytes += of(a.in) + of(a.out) + of(a.waits) + of(a.after);
    }
  return bytes;
}

// The device has memory of its own.
bool has_pinned(const Plan& plan) {
  return std::any_of(plan.arenas.begin(), plan.arenas.end(), [](const Arena& a) { return a.kind == "pinned"; });
}

// Bytes that are kept for the actions that send to other ranks.
uint64_t messages_of(const Plan& plan) {
  const bool discrete = has_pinned(plan);
  uint64_t bytes = 0;
  for (const Program& p : plan.programs)
    for (const Segment& s : p.segments)
      for (const Action& a : s.actions) {
        const Call& call = plan.calls[a.call];
        if (!call.op->collective) continue;
        const uint64_t others = plan.ranks.group(static_cast<Id>(call.attrs.i("group", 1))).size() - 1;
        const uint64_t messages = call.op->id == std::string(ENG_OP_BROADCAST) ? std::bit_width(others) : 2 * others;
        bytes += discrete ? collective_of_device : collective + messages * message;
      }
  return bytes;
}

uint64_t lists_of(const Model& model) {
  uint64_t bytes = of(model.params) + of(model.blocks);
  for (const Parameter& p : model.params) bytes += of(p.name) + of(p.init_op) + of(p.init);
  for (const Block& b : model.blocks) bytes += of(b.name) + of(b.params);
  for (const auto& [id, t] : model.templates) {
    for (const Node& n : t.graph.nodes) bytes += sizeof(Node) + of(n.in) + of(n.out) + of(n.attrs);
    bytes += t.graph.size() * sizeof(Symbol);
    bytes += of(t.constants);
  }
  return bytes;
}

// Templates and the plan share constants: each is in memory once, also where this plan itself was made without them.
uint64_t constants_of(const Plan& plan) {
  uint64_t bytes = 0;
  const std::set<std::shared_ptr<const Constant>> all(plan.constant_data.begin(), plan.constant_data.end());
  for (const auto& c : all) bytes += allocated(eng::bytes(c->desc));
  return bytes;
}

// Rows of weights whose lengths are computed before the first step (session/train/lengths.hpp): a tile of them, also in
// f32, and where ranks have parts of them what each rank sent, twice.
uint64_t rows_of_lengths(const Plan& plan) {
  std::set<std::string> maps;
  for (const Tensor& t : plan.tensors)
    if (const size_t at = t.name.rfind(".lora_magnitude_vector"); at != std::string::npos)
      maps.insert(t.name.substr(0, at) + ".weight");
  uint64_t most = 0;
  for (const Tensor& t : plan.tensors)
    if (maps.count(t.name)) {
      const uint64_t tile = std::min(lengths_tile, static_cast<uint64_t>(count(t.desc)));
      const bool sent = t.part || t.cut.count > 1 || plan.ranks.pipeline > 1;  // as Trainer::gather does
      const uint64_t blocks = sent ? 2 * plan.ranks.world.size + 1 : 1;
      most = std::max(most, tile * (blocks * dtype_size(t.desc.dtype) + sizeof(float)));
    }
  return most;
}

uint64_t shared_with_ranks(const Plan& plan) {
  const uint64_t here = plan.ranks.world.local_size;
  return here > 2 ? (here - 2) * further_rank : 0;
}

}  // namespace

uint64_t second_place_bytes(uint64_t tensors, bool store) {
  constexpr uint64_t copied_at_once = 1 << 20, tile = 512 << 10, stack = 128 << 10;
  constexpr uint64_t libraries = 6'300'000;  // libcurl 7.88 with OpenSSL over https; 4.5 MB over http
  return copied_at_once + tile + stack + read_tensor * tensors + (store ? libraries : 0);
}

uint64_t bookkeeping_bytes(const Plan& plan, const Model& model, uint64_t stored) {
  const uint64_t lists = lists_of(plan);
  uint64_t tables = 0;
  if (plan.table.buffer) {
    tables = plan.tensors.size() * saved_tensor;
  } else {
    uint64_t letters = 0;
    for (const Tensor& t : plan.tensors) letters += t.name.size();
    tables = stored * (read_tensor + letter * letters / std::max<size_t>(plan.tensors.size(), 1));
  }
  // The rows are gone when the messages of the first step and the tables of the first save come.
  return lists + ranges_of(plan) + executed(lists) + lists_of(model) + constants_of(plan) + shared_with_ranks(plan) +
         std::max(tables + messages_of(plan), plan.table.buffer ? rows_of_lengths(plan) : 0);
}

void release_freed_memory() {
#ifdef __GLIBC__
  ::malloc_trim(0);
#endif
}

uint64_t loaded_bytes(const std::set<const void*>& addresses) {
  struct Search {
    const std::set<const void*>& addresses;
    uint64_t bytes;
  } search{addresses, 0};
  dl_iterate_phdr(
      [](dl_phdr_info* object, size_t, void* out) {
        auto& found = *static_cast<Search*>(out);
        constexpr uint64_t step = 64 * 1024, whole = 256 * 1024;
        uint64_t bytes = 0;
        bool here = false, own = false;
        for (size_t k = 0; k < object->dlpi_phnum; ++k) {
          const auto& part = object->dlpi_phdr[k];
          if (part.p_type != PT_LOAD) continue;
          const auto inside = [&](const void* address) {
            return reinterpret_cast<uintptr_t>(address) - object->dlpi_addr - part.p_vaddr < part.p_memsz;
          };
          here = here || std::any_of(found.addresses.begin(), found.addresses.end(), inside);
          own = own || inside(reinterpret_cast<const void*>(&peak_resident_bytes));
          bytes += part.p_memsz;
        }
        if (bytes > whole) bytes = whole + (bytes - whole) * 3 / 5;
        if (here && !own) found.bytes += (bytes + step - 1) / step * step;
        return 0;
      },
      &search);
  return search.bytes;
}

uint64_t peak_resident_bytes() {
  // In Linux getrusage also counts what the process was before it started this program: a copy of its parent.
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);)
    if (line.starts_with("VmHWM:")) return std::strtoull(line.c_str() + 6, nullptr, 10) * 1024;
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<uint64_t>(usage.ru_maxrss) * 1024;
}

}  // namespace eng
