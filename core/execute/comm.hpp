// SPDX-License-Identifier: Apache-2.0
// A loaded communicator: the ranks of this run, their collectives, and the exchange of texts.
#pragma once

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "engine/comm.h"

namespace eng {

// All but find and workspace throw Error(Exit::communication) if other ranks cannot be reached.
class Communicator {
 public:
  // Joins the ranks that were started together; `announced`: ENG_WORLD_* of what a launcher said of this one. Throws
  // Error(Exit::environment) for a faulty plugin or option.
  Communicator(Registry& registry, const Section& comm, const World& said = {}, uint32_t announced = 0);
  // Leaves the other ranks; everything bound to it must be destroyed before. If an exception is unwinding, it aborts.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  const World& world() const { return world_; }
  // Makes those groups of `ranks` that do not exist yet. All ranks call it with the same groups.
  void make_groups(const Ranks& ranks);
  // Returns the texts of all ranks, by rank. Lengths may differ; with empty ones it is a barrier. One thread at a time;
  // collectives of a step may run concurrently.
  std::vector<std::string> exchange(const std::string& mine);
  // Throws if an error is known already; does not wait.
  void check();
  // Makes every wait on every rank fail with this reason. After that, only the destructor may be called.
  void abort(const std::string& reason);

  // Kernel and scratch bytes of a collective. Throws Error(Exit::environment) if the communicator does not support it.
  const eng_kernel& find(const Call& call) const;
  uint64_t workspace(const Call& call, const eng_device_info& device) const;
  // Its kernels run on the host and take host memory only.
  bool on_host() const { return !(table_.flags & ENG_COMM_DEVICE_MEMORY); }
  void* self() const { return self_; }

 private:
  std::vector<char> swap(const void* mine, uint64_t bytes);  // the bytes of all ranks, by rank
  std::string name_;
  eng_comm table_{};
  void* self_ = nullptr;
  World world_;
  size_t groups_ = 1;   // groups that exist
  int exceptions_ = 0;  // in flight at construction
  std::map<std::string, eng_kernel> kernels_;
};

}  // namespace eng
