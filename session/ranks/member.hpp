// SPDX-License-Identifier: Apache-2.0
// This process as one rank of a run. With a single rank, it is rank 0 of 1 and these functions do nothing.
#pragma once

#include <exception>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "core/execute/comm.hpp"
#include "session/config/failure.hpp"
#include "session/ranks/agree.hpp"
#include "session/ranks/ranks.hpp"

namespace eng {

// The facts that a process has about itself before it contacts the others.
struct MemberStart {
  std::string command;                         // the whole command line
  std::vector<std::string> arguments;          // its words after `engine`
  std::function<void(const Failure&)> tell{};  // reports why this rank ends, if no other process reports it
  bool alone = false;                          // one rank, whatever a launcher announces
};

class Member {
 public:
  // Reads the environment and connects to the parent, if any. Signal handlers must be installed before.
  explicit Member(MemberStart start);
  ~Member();
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;

  bool many() const { return announced_.size > 1; }
  bool first() const { return announced_.rank == 0; }
  uint32_t rank() const { return announced_.rank; }
  uint32_t size() const { return announced_.size; }
  bool quiet() const { return has_parent() || !first(); }  // another rank, or the parent, prints
  bool has_parent() const { return link_.is_open(); }
  bool told() const { return many() || has_parent(); }  // failures go to `failed`, which somebody else prints
  // The command line as the user typed it.
  const std::string& command() const { return has_parent() ? link_.parent().command : start_.command; }
  // The command that resumes a run, or what another `verb` goes on with, with as many ranks.
  std::string again(const std::filesystem::path& run, const std::string& verb = "run") const;

  // Refuses ranks whose launcher gives them no way to connect. Connects to the other ranks, which must have the same
  // configuration, and divides the processors of this machine.
  void join(Registry& registry, Config& config);
  Communicator* communicator() const { return communicator_.get(); }  // nullptr with one rank
  const Exchange& exchange() const { return exchange_; }
  // All ranks call it. Returns the text of rank 0.
  std::string from_first(const std::string& text) const;
  const std::vector<std::string>& hosts() const { return hosts_; }  // of the ranks, without repetition

  // Writes into this rank's log the bytes of host memory that its own plan has for its process.
  void planned(uint64_t process) noexcept;
  // Rank 0 holds the directory. From now on this rank's log is in it.
  void works_in(const std::filesystem::path& run);
  // Reports once, to the log, the parent and the other ranks, why this rank ends. Never throws.
  void failed(std::exception_ptr reason) noexcept;
  // All ranks call it at the end, when nothing uses the communicator: disconnects from the others. Returns the exit
  // code of the process.
  int leave(Exit exit);

 private:
  void log(const std::string& text) noexcept;
  void tell_by_hand(const Failure& failure) const;
  MemberStart start_;
  Announced announced_;
  Link link_;
  std::unique_ptr<Communicator> communicator_;
  Exchange exchange_;
  std::vector<std::string> hosts_;
  std::filesystem::path run_;
  std::mutex waiting_mutex_;
  std::vector<std::string> waiting_;  // lines for the log, until it exists
  bool failed_ = false;
};

}  // namespace eng
