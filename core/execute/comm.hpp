// SPDX-License-Identifier: Apache-2.0
// A communicator plugin in use: the ranks of this run, their collectives, and words between them.
#pragma once

#include "core/plan/plan.hpp"
#include "core/registry/registry.hpp"
#include "engine/comm.h"

namespace eng {

// All but find and workspace throw Error(Exit::communication) when the others cannot be reached.
class Communicator {
 public:
  // Joins the ranks that were started together.
  Communicator(Registry& registry, const Section& comm);
  // Takes leave of them; what is bound to this must be gone. While an exception leaves its scope, it aborts instead.
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  const std::string& name() const { return name_; }
  const World& world() const { return world_; }
  // Those that are not made yet. The same on all ranks.
  void make_groups(const Ranks& ranks);
  // Lengths may differ. One thread at a time; collectives of a step may run beside it.
  std::vector<std::string> exchange(const std::string& mine);
  void barrier();
  // Whether something is known to be wrong; does not wait.
  void check();
  // Makes every wait of every rank fail with this reason. After it only the destructor may be called.
  void abort(const std::string& reason);

  // Of a collective, for memory of a device. Throws Error(Exit::environment) where this communicator does not have it.
  const eng_kernel& find(const Call& call) const;
  uint64_t workspace(const Call& call, const eng_device_info& device) const;
  // Its kernels work on the host, and take memory of the host alone.
  bool on_host() const { return !(table_.flags & ENG_COMM_DEVICE_MEMORY); }
  void* self() const { return self_; }

 private:
  std::vector<char> swap(const void* mine, uint64_t bytes);
  std::string name_;
  eng_comm table_{};
  void* self_ = nullptr;
  World world_;
  size_t groups_ = 1;
  int exceptions_ = 0;  // on their way when this was made
  std::map<std::string, eng_kernel> kernels_;
};

}  // namespace eng
