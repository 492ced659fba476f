// SPDX-License-Identifier: Apache-2.0
// A run on one machine cannot be reached from others.
#include <arpa/inet.h>
#include <sys/un.h>

#include <cstddef>
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

// The addresses at which those of them listen, or are bound for datagrams: "0100007F:8FCF", as the kernel writes it.
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

// The socket on which a command waits for its ranks, without the NUL before its name.
std::string socket_of(pid_t pid) {
  std::ifstream table("/proc/net/unix");
  const std::string begin = "@engine-" + std::to_string(pid) + "-";
  for (std::string line; std::getline(table, line);)
    if (const size_t at = line.find(begin); at != line.npos) return line.substr(at + 1);
  return "";
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

TEST_CASE("another process of the same user on the command's socket is no rank", "[ranks]") {
  Training training({}, "2");
  REQUIRE(training.child->wait_for("model llama"));
  const std::string name = socket_of(training.child->pid());
  REQUIRE_FALSE(name.empty());
  for (const std::string text : {R"({"hello":99999})", R"({"hello":-1})", "{\"stderr\":-1}\nforged",
                                 "{\"stderr\":7}\nforged", R"({"hello":"x"})", R"({"stderr":2})", "no JSON", ""}) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
    const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
    const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    REQUIRE(connect(fd, reinterpret_cast<const sockaddr*>(&address), length) == 0);
    CHECK(send(fd, (text + "\n").data(), text.size() + 1, MSG_NOSIGNAL) == ssize_t(text.size() + 1));
    close(fd);
  }
  REQUIRE(training.child->wait_for("saved step-"));
  training.child->signal(SIGINT);
  const Result result = training.child->wait();
  INFO(result.err);
  CHECK(result.exit == 75);
  CHECK_FALSE(has(result.err, "forged"));
}
