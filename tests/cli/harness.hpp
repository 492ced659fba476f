// SPDX-License-Identifier: Apache-2.0
// Runs the built `engine` command as people do: a child process with arguments, signals and exit codes.
#pragma once

#include <sys/resource.h>
#include <sys/types.h>

#include <catch2/catch.hpp>
#include <cstdint>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "tests/sanitized.hpp"

namespace cli {

namespace fs = std::filesystem;
using Json = nlohmann::json;
using Args = std::vector<std::string>;

// A folder of its own for one test, removed with everything in it. It holds text.txt to train on.
class Scratch {
 public:
  explicit Scratch(const fs::path& root = fs::temp_directory_path());
  ~Scratch();
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;
  fs::path operator/(const std::string& name) const { return path_ / name; }
  const fs::path& path() const { return path_; }
  // Writes a file and returns its path.
  fs::path write(const std::string& name, const std::string& text) const;
  // A configuration of a very small model on text.txt: two layers, micro-batches of 2 x 32, 8 steps, one thread.
  fs::path config(const std::string& name = "config.toml") const;

 private:
  fs::path path_;
};

struct Result {
  int exit = -1;  // 128 + signal where a signal ended it, as shells show it
  bool killed = false;
  std::string out, err;
  rusage usage{};
  double seconds = 0;
  uint64_t peak_bytes() const { return static_cast<uint64_t>(usage.ru_maxrss) * 1024; }
};

struct Limits {
  double seconds = 100 * patience;  // then it hangs: it is killed and the test fails
  uint64_t file_bytes = 0;          // RLIMIT_FSIZE; 0: none
  std::string path = "/usr/bin:/bin";
  std::string program = "";  // instead of engine; an absolute path
  Args more = {};            // of the environment: "NAME=VALUE"
  int stalled = -1;          // a descriptor that is its stdout and its stderr, in place of files
};

// A pipe that is full and that nobody reads.
class FullPipe {
 public:
  FullPipe();
  ~FullPipe();
  FullPipe(const FullPipe&) = delete;
  FullPipe& operator=(const FullPipe&) = delete;
  int end() const { return ends_[1]; }

 private:
  int ends_[2] = {-1, -1};
};

// One running `engine`. Killed if the object goes first.
class Child {
 public:
  Child(const Scratch& scratch, const Args& args, Limits limits = {});
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  pid_t pid() const { return pid_; }
  void signal(int number) const;
  bool running();
  // Until stderr holds `text`; false if the process ended without it.
  bool wait_for(const std::string& text);
  // Until `path` exists; false if the process ended without it.
  bool wait_for_path(const fs::path& path);
  Result wait();

 private:
  bool reap(bool block);
  pid_t pid_ = -1;
  fs::path out_, err_;
  Limits limits_;
  double started_ = 0;
  bool ended_ = false;
  int status_ = 0;
  Result result_;
};

// To its end.
Result engine(const Scratch& scratch, const Args& args, Limits limits = {});

// The readable content of a file: nothing of one that is missing, or of a process in /proc that has ended.
std::string read(const fs::path& path);
// Each line of metrics.jsonl without what is measured: times, rates and the process's own memory.
std::vector<std::string> numbers(const fs::path& run);
std::vector<double> column(const fs::path& run, const std::string& key);
std::vector<Json> metrics(const fs::path& run);  // its lines
// Runs the command, which must succeed.
Result good(const Scratch& scratch, const Args& args);
Json state(const fs::path& run);
// File name -> bytes of the tensors of a checkpoint.
std::map<std::string, std::string> tensors(const fs::path& run, int64_t step);
fs::path checkpoint(const fs::path& run, int64_t step);
// Names in a folder, sorted; an absent folder has none.
std::vector<std::string> names(const fs::path& folder);
bool has(const std::string& text, const std::string& part);

}  // namespace cli
