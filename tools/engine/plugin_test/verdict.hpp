// SPDX-License-Identifier: Apache-2.0
// The result of `engine plugins test`: one verdict for each law that was tried.
#pragma once

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
#include <vector>

namespace eng::plugin_test {

enum class Outcome : uint8_t { pass, fail, untested };

struct Verdict {
  std::string of;     // "file", "process", or "eng.kernels/1 cpu"
  std::string check;  // "eng.linear/1: inputs stay as they are"
  Outcome outcome = Outcome::pass;
  std::string text;  // why it failed or was not tested; else what was tried
};

// A law that the plugin breaks: what, and with which shape.
struct Broken : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A law that cannot be tried here, and what that would need.
struct Untested : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Receives verdicts. `begin` hears of a check before it runs, so that a crash can be reported with it.
struct Receiver {
  std::function<void(const std::string& check)> begin;
  std::function<void(const Verdict&)> put;
};

class Sheet {
 public:
  Sheet(std::string of, Receiver to, uint64_t seed) : of_(std::move(of)), to_(std::move(to)), seed_(seed) {}
  // Runs one check. What it returns is the text of a pass; what it throws is its failure, or why it was not tested.
  // Returns whether it passed.
  bool check(const std::string& name, const std::function<std::string()>& body);
  void untested(const std::string& name, const std::string& why);
  void fail(const std::string& name, const std::string& why);

 private:
  std::string of_;
  Receiver to_;
  uint64_t seed_;
};

// Printable, in one line, of limited length.
std::string one_line(const std::string& text, size_t most = 600);
// The table, and the line "N passed, N failed, N not tested".
std::string table_of(const std::vector<Verdict>& verdicts);
std::string json_of(const std::string& file, const std::vector<Verdict>& verdicts, uint64_t seed);

}  // namespace eng::plugin_test
