// SPDX-License-Identifier: Apache-2.0
#include "core/execute/comm.hpp"

#include <algorithm>
#include <cstring>
#include <exception>

#include "core/execute/device.hpp"

namespace eng {

Communicator::Communicator(Registry& registry, const Section& comm, const World& said, uint32_t announced)
    : name_(comm.string("plugin")), table_(registry.table<eng_comm>(ENG_COMM_KIND, name_)) {
  const Candidate& own = *registry.providers(ENG_COMM_KIND, name_)[0];
  kernels_ = load_kernels(registry.table_of<eng_kernels>(own, ENG_KERNELS_KIND, name_), "communicator " + name_);
  Options options(comm);
  eng_world world{sizeof(eng_world), 0, 0, 0, 0, announced};
  if (announced & ENG_WORLD_RANKS) world.rank = said.rank, world.size = said.size;
  if (announced & ENG_WORLD_LOCAL) world.local_rank = said.local_rank;
  Sink sink;
  const eng_status status = table_.create(options.get(), comm.number("timeout"), &world, &self_, sink.get());
  sink.check(status, status == ENG_UNAVAILABLE ? Exit::communication : Exit::environment, "[comm] " + name_);
  world_ = {world.rank, world.size, world.local_rank, world.local_size};
  exceptions_ = std::uncaught_exceptions();
  if (world.rank < world.size && world.local_rank < world.local_size && world.local_size <= world.size) return;
  table_.destroy(self_);
  throw fault("[comm] {} makes this rank {} of {}, and rank {} of {} on its machine", name_, world.rank, world.size,
              world.local_rank, world.local_size);
}

Communicator::~Communicator() {
  // Otherwise the other ranks would wait for this one until their timeout, and this one for them.
  if (std::uncaught_exceptions() > exceptions_) abort("it left because of an error");
  table_.destroy(self_);
}

void Communicator::make_groups(const Ranks& ranks) {
  for (; groups_ < ranks.groups.size(); ++groups_) {
    const std::vector<uint32_t>& group = ranks.groups[groups_];
    const auto id = static_cast<eng_id>(groups_ + 1);
    call_plugin(Exit::communication, fmt::format("communicator {}, group of ranks {}", name_, fmt::join(group, ", ")),
                table_.group, self_, id, group.data(), static_cast<uint32_t>(group.size()));
  }
}

std::vector<char> Communicator::swap(const void* mine, uint64_t bytes) {
  std::vector<char> all(bytes * world_.size);
  call_plugin(Exit::communication, "communicator " + name_, table_.exchange, self_, mine, bytes, all.data());
  if (bytes && std::memcmp(all.data() + bytes * world_.rank, mine, bytes) != 0)
    throw Error(Exit::communication, fmt::format("communicator {}: exchange gave rank {} bytes for itself that are not "
                                                 "those it sent",
                                                 name_, world_.rank));
  return all;
}

std::vector<std::string> Communicator::exchange(const std::string& mine) {
  const uint64_t length = mine.size();
  std::vector<uint64_t> lengths(world_.size);
  std::memcpy(lengths.data(), swap(&length, sizeof(length)).data(), lengths.size() * sizeof(length));
  const uint64_t most = *std::max_element(lengths.begin(), lengths.end());
  if (most > uint64_t{1} << 34)
    throw Error(Exit::communication, fmt::format("communicator {}: a rank announces {} bytes", name_, most));
  std::vector<std::string> out(world_.size);
  if (most == 0) return out;
  std::string padded = mine;
  padded.resize(most);
  const std::vector<char> all = swap(padded.data(), most);
  for (size_t r = 0; r < out.size(); ++r) out[r].assign(all.data() + r * most, lengths[r]);
  return out;
}

void Communicator::check() {
  call_plugin(Exit::communication, "communicator " + name_, table_.poll, self_);
}

void Communicator::abort(const std::string& reason) {
  table_.abort(self_, reason.c_str());
}

const eng_kernel& Communicator::find(const Call& call) const {
  const auto it = kernels_.find(call.op->id);
  if (it == kernels_.end()) throw fault("communicator {} has no kernel for {}", name_, call.op->id);
  return it->second;
}

uint64_t Communicator::workspace(const Call& call, const eng_device_info& device) const {
  uint64_t bytes = 0;
  Sink sink;
  sink.check(CallArgs(call, 1, &device).workspace(find(call), bytes, sink), Exit::environment,
             fmt::format("communicator {}, {}", name_, call.op->id));
  return bytes;
}

}  // namespace eng
