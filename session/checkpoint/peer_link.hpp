// SPDX-License-Identifier: Apache-2.0
// Sends files from this rank's host to a rank of the next one, while training continues. The bytes go over a connection
// of their own and by threads of their own: a communicator has one order of collectives, which are those of the step.
#pragma once

#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "session/checkpoint/share.hpp"
#include "session/file.hpp"

namespace eng {

class PeerLink {
 public:
  // Rank k of a host sends to rank k of the next host, the last host to the first. Null if all ranks are on one host.
  // What arrives is written into `folder`, which each host has. All ranks call it; on failure all throw
  // Error(Exit::communication).
  static std::unique_ptr<PeerLink> join(const std::filesystem::path& folder, const Peers& peers);
  ~PeerLink();
  PeerLink(const PeerLink&) = delete;
  PeerLink& operator=(const PeerLink&) = delete;

  // Begins to send files of a subfolder of `folder`, the last one last: once it is there, all of them are. Only if not
  // busy.
  void send(const std::string& subfolder, std::vector<std::string> files);
  bool busy() const { return busy_; }
  // The reason for which nothing is sent any more, once; or "".
  std::string news();
  const std::string& kept_by() const { return kept_by_; }  // "rank 2 on node7"

 private:
  PeerLink(std::filesystem::path folder, std::string token, double timeout);
  void listen(const std::string& address);
  void connect(const std::string& address, uint16_t port, uint32_t rank);
  void start();
  void sends();
  void receives();
  void send_file(const std::string& subfolder, const std::string& name, bool last);

  struct Incoming;
  const std::filesystem::path folder_;
  const std::string token_;
  const double timeout_;
  std::string kept_by_;
  Fd listener_, to_, wake_;
  uint16_t port_ = 0;
  std::thread sender_, receiver_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::string subfolder_;
  std::vector<std::string> files_;
  std::string lost_;  // why it has failed
  bool told_ = false;
  std::atomic<bool> busy_ = false, ends_ = false;
};

// The numeric address of this host on its way to another one, or "" if there is none that others reach.
std::string address_towards(const std::string& host);

}  // namespace eng
