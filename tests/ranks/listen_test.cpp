// SPDX-License-Identifier: Apache-2.0
// A run on one machine cannot be reached from others.
#include <arpa/inet.h>

#include <fstream>
#include <set>
#include <sstream>

#include "training.hpp"

using namespace cli;

namespace {

// The numbers of the sockets that these processes have open.
std::set<std::string> sockets(const std::vector<pid_t>& all) {
  std::set<std::string> out;
  for (const pid_t pid : all) {
    const fs::path fds = fs::path("/proc") / std::to_string(pid) / "fd";
    for (const std::string& name : names(fds)) {
      std::error_code gone;
      const std::string target = fs::read_symlink(fds / name, gone);
      if (target.rfind("socket:[", 0) == 0) out.insert(target.substr(8, target.size() - 9));
    }
  }
  return out;
}

// Where those of them listen, or are bound for datagrams: "0100007F:8FCF", as the kernel writes it.
std::vector<std::string> bound(const std::set<std::string>& mine) {
  std::vector<std::string> out;
  for (const std::string protocol : {"tcp", "tcp6", "udp", "udp6"}) {
    std::ifstream table("/proc/net/" + protocol);
    std::string line;
    std::getline(table, line);  // the names of the columns
    while (std::getline(table, line)) {
      std::istringstream words(line);
      std::vector<std::string> w;
      for (std::string word; words >> word;) w.push_back(word);
      const bool listens = protocol[0] == 'u' || w.at(3) == "0A";
      if (listens && mine.count(w.at(9))) out.push_back(w.at(1));
    }
  }
  return out;
}

bool loopback(const std::string& address) {
  const std::string host = address.substr(0, address.find(':'));
  return host == "0100007F" || host == "00000000000000000000000001000000";
}

}  // namespace

TEST_CASE("ranks of one machine listen on the loopback interface alone", "[ranks]") {
  // The check finds a socket that is open to others.
  const int open = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_in any{};
  any.sin_family = AF_INET;
  REQUIRE(bind(open, reinterpret_cast<const sockaddr*>(&any), sizeof(any)) == 0);
  REQUIRE(listen(open, 1) == 0);
  const std::vector<std::string> own = bound(sockets({getpid()}));
  close(open);
  REQUIRE(own.size() == 1);
  CHECK_FALSE(loopback(own[0]));

  Training training({}, "3");
  for (const char* moment : {"model llama", "saved step-"}) {
    REQUIRE(training.child->wait_for(moment));
    const std::vector<pid_t> all = processes(training.run.string());
    CHECK(all.size() >= 5);  // the command, mpirun, three ranks
    const std::vector<std::string> where = bound(sockets(all));
    CHECK_FALSE(where.empty());  // mpirun's own, for the ranks
    for (const std::string& address : where) {
      INFO(address);
      CHECK(loopback(address));
    }
  }
}
