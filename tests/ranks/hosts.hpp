// SPDX-License-Identifier: Apache-2.0
// Network namespaces that stand for hosts: each has a name, an address, a network card on one switch, and a file system
// in memory of its own. They share the disk, as hosts with a file server do. Needs root.
#pragma once

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "processes.hpp"
#include "tests/paths.hpp"

namespace cli {

class Hosts {
 public:
  // node1, node2, ... at 10.77.0.1, 10.77.0.2, ...
  Hosts(const Scratch& scratch, int count) : scratch_(scratch) {
    std::string names = "127.0.0.1 localhost\n";
    for (int k = 1; k <= count; ++k) names += "10.77.0." + std::to_string(k) + " node" + std::to_string(k) + "\n";
    scratch.write("hosts", names);
    switch_ = begin("exec sleep 1000");
    for (int k = 1; k <= count && why_.empty(); ++k)
      nodes_.push_back(begin("hostname node" + std::to_string(k) +
                             " && mount --make-rprivate / && mount -t tmpfs tmpfs /dev/shm && " + "mount --bind " +
                             (scratch / "hosts").string() + " /etc/hosts && exec sleep 1000"));
    run(at(switch_) + "ip link add switch type bridge");
    run(at(switch_) + "ip link set switch up");
    for (int k = 1; k <= count; ++k) {
      const std::string port = "port" + std::to_string(k), node = at(pid(k));
      run(at(switch_) + "ip link add " + port + " type veth peer name eth0 netns " + std::to_string(pid(k)));
      run(at(switch_) + "ip link set " + port + " master switch up");
      run(node + "ip addr add 10.77.0." + std::to_string(k) + "/24 dev eth0");
      run(node + "ip link set eth0 up");
      run(node + "ip link set lo up");
    }
    // In the place of ssh: mpirun gives it the host and the words.
    std::string agent = "#!/bin/sh\nhost=$1\nshift\ncase $host in\n";
    for (int k = 1; k <= count && why_.empty(); ++k)
      agent += "node" + std::to_string(k) + ") exec " + at(pid(k)) + "sh -c \"$*\" ;;\n";
    fs::permissions(scratch.write("agent", agent + "esac\n"), fs::perms::owner_all);
  }
  ~Hosts() {
    end_processes();
    for (const pid_t node : nodes_) end(node);
    end(switch_);
  }
  Hosts(const Hosts&) = delete;
  Hosts& operator=(const Hosts&) = delete;

  // The reason for which there are no hosts here; "" if there are.
  const std::string& why() const { return why_; }
  // Takes the network cable of a host out, or puts it in.
  void cable(int node, bool in) {
    run(at(switch_) + "ip link set port" + std::to_string(node) + (in ? " up" : " down"));
  }
  // Ends all that was started on the hosts: mpirun and its daemons wait for each other where a cable is out.
  void end_processes() const {
    for (const pid_t node : nodes_)
      for (const pid_t one : on(node))
        if (one != node) kill(one, SIGKILL);
  }
  // Processes of a host with this word on their command line.
  std::vector<pid_t> ranks_on(int node, const std::string& word) const {
    std::vector<pid_t> out;
    for (const pid_t one : on(pid(node)))
      if (const std::string line = read(fs::path("/proc") / std::to_string(one) / "cmdline");
          has(line, word) && line.starts_with(ENGINE_COMMAND))
        out.push_back(one);
    return out;
  }
  // The memory of a host is lost.
  void forget(int node) { run(at(pid(node)) + "sh -c 'rm -rf /dev/shm/engine-copies-*'"); }
  std::string memory_of(int node) const {
    std::string out;
    for (const std::string& name : names(fs::path("/proc") / std::to_string(pid(node)) / "root/dev/shm"))
      out += name + " ";
    return out;
  }
  // The words of mpirun on the first of these that start as many ranks on each.
  Args mpirun(const std::vector<int>& nodes, const Args& words, const Args& own = {}, int ranks = 2) const {
    std::string all;
    for (const int k : nodes) all += (all.empty() ? "node" : ",node") + std::to_string(k) + ":" + std::to_string(ranks);
    Args out = {"-t",
                std::to_string(pid(nodes[0])),
                "-n",
                "-u",
                "-m",
                "--",
                "mpirun",
                "--allow-run-as-root",
                "--oversubscribe",
                "--bind-to",
                "none",
                "--mca",
                "plm_rsh_agent",
                (scratch_ / "agent").string(),
                "--host",
                all,
                "--mca",
                "btl_tcp_if_include",
                "eth0",
                "--mca",
                "oob_tcp_if_include",
                "eth0",
                "--wdir",
                scratch_.path().string()};
    out.insert(out.end(), own.begin(), own.end());
    out.emplace_back(ENGINE_COMMAND);
    out.insert(out.end(), words.begin(), words.end());
    return out;
  }
  static Limits limits() { return {.path = "/usr/sbin:/usr/bin:/sbin:/bin", .program = "/usr/bin/nsenter"}; }

 private:
  static std::string at(pid_t pid) { return "nsenter -t " + std::to_string(pid) + " -n -u -m -- "; }
  pid_t pid(int node) const { return why_.empty() ? nodes_.at(static_cast<size_t>(node) - 1) : 0; }
  void run(const std::string& command) {
    if (!why_.empty()) return;
    const fs::path said = scratch_ / "said";
    if (std::system((command + " >" + said.string() + " 2>&1").c_str()) != 0) why_ = command + ": " + read(said);
  }
  // Processes in the network of another one.
  static std::vector<pid_t> on(pid_t node) {
    std::error_code gone;
    const auto net = [&](pid_t pid) {
      return fs::read_symlink(fs::path("/proc") / std::to_string(pid) / "ns/net", gone).string();
    };
    std::vector<pid_t> out;
    const std::string mine = node > 0 ? net(node) : "";
    for (const std::string& name : names("/proc"))
      if (name.find_first_not_of("0123456789") == std::string::npos && !mine.empty() && net(std::stoi(name)) == mine)
        out.push_back(std::stoi(name));
    return out;
  }
  static void end(pid_t pid) {
    if (pid <= 0) return;
    kill(pid, SIGKILL);
    waitpid(pid, nullptr, 0);
  }
  // A process in namespaces of its own, once it has them.
  pid_t begin(const std::string& script) {
    if (!why_.empty()) return 0;
    const fs::path ready = scratch_ / "ready";
    fs::remove(ready);
    const std::string whole = script.substr(0, script.rfind("exec")) + "touch " + ready.string() + " && " +
                              script.substr(script.rfind("exec"));
    const pid_t pid = fork();
    if (pid == 0) {
      const int null = open("/dev/null", O_RDWR);
      for (const int fd : {0, 1, 2}) dup2(null, fd);
      execlp("unshare", "unshare", "-n", "-u", "-m", "sh", "-c", whole.c_str(), nullptr);
      _exit(127);
    }
    for (const auto began = Clock::now(); !fs::exists(ready);) {
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
      if (waitpid(pid, nullptr, WNOHANG) == pid) {
        why_ = "network namespaces are refused: unshare -n -u -m failed";
        return 0;
      }
      if (seconds_since(began) > 10 * patience) {
        why_ = "unshare does not answer";
        end(pid);
        return 0;
      }
    }
    return pid;
  }

  const Scratch& scratch_;
  std::string why_;
  pid_t switch_ = 0;
  std::vector<pid_t> nodes_;
};

}  // namespace cli
