// SPDX-License-Identifier: Apache-2.0
#include "harness.hpp"

#include <fcntl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <cstdlib>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <regex>
#include <sstream>
#include <thread>

namespace cli {
namespace {

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

void pause_briefly() {
  std::this_thread::sleep_for(std::chrono::milliseconds(2));
}

std::string some_text() {
  const char* words[] = {"plan", "arena", "step", "loss", "weight", "the", "of", "a", "byte", "queue", "lease"};
  std::string out;
  uint64_t x = 12345;
  while (out.size() < 20000) {
    x = x * 6364136223846793005u + 1442695040888963407u;
    out += words[(x >> 33) % 11];
    out += (x >> 50) % 9 ? ' ' : '\n';
  }
  return out;
}

}  // namespace

Scratch::Scratch(const fs::path& root) {
  std::string name = (root / "engine-cli-XXXXXX").string();
  if (!mkdtemp(name.data())) throw std::runtime_error("no scratch folder: " + name);
  path_ = name;
  write("text.txt", some_text());
}

Scratch::~Scratch() {
  std::error_code ignored;
  fs::remove_all(path_, ignored);
}

fs::path Scratch::write(const std::string& name, const std::string& text) const {
  std::ofstream file(path_ / name, std::ios::binary);
  file << text;
  file.close();
  if (!file) throw std::runtime_error("cannot write " + (path_ / name).string());
  return path_ / name;
}

fs::path Scratch::config(const std::string& name) const {
  return write(name, R"([run]
name = "small"

[model]
plugin = "llama"
preset = "tiny"
num_hidden_layers = 2
hidden_size = 32
intermediate_size = 64
num_attention_heads = 2

[data]
paths = ["text.txt"]
validation = 0.1

[train]
steps = 8
micro_batch = 2
sequence_length = 32
eval_every = 4
eval_batches = 2

[optimizer]
learning_rate = 3e-3

[checkpoint]
every = 4

[device]
plugin = "cpu"
threads = 1
)");
}

FullPipe::FullPipe() {
  if (pipe2(ends_, O_CLOEXEC) != 0) throw std::runtime_error("pipe failed");
  const int flags = fcntl(ends_[1], F_GETFL);
  fcntl(ends_[1], F_SETFL, flags | O_NONBLOCK);
  const std::string page(4096, '.');
  while (::write(ends_[1], page.data(), page.size()) > 0) {
  }
  fcntl(ends_[1], F_SETFL, flags);
}

FullPipe::~FullPipe() {
  for (const int end : ends_) close(end);
}

Child::Child(const Scratch& scratch, const Args& args, Limits limits) : limits_(limits) {
  static int number = 0;
  const std::string tag = std::to_string(++number);
  out_ = scratch / ("stdout-" + tag);
  err_ = scratch / ("stderr-" + tag);
  std::vector<std::string> words = {limits.program.empty() ? ENGINE_COMMAND : limits.program};
  words.insert(words.end(), args.begin(), args.end());
  std::vector<char*> argv;
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  // Nothing of the user's own plugins or settings.
  std::string home = "HOME=" + scratch.path().string(), path = "PATH=" + limits.path, locale = "LC_ALL=C";
  std::vector<std::string> sanitizers;
  for (const char* name : {"ASAN_OPTIONS", "UBSAN_OPTIONS"})
    if (const char* value = std::getenv(name)) sanitizers.push_back(std::string(name) + "=" + value);
  std::vector<char*> environment = {home.data(), path.data(), locale.data()};
  for (std::string& variable : limits_.more) environment.push_back(variable.data());
  for (std::string& option : sanitizers) environment.push_back(option.data());
  environment.push_back(nullptr);
  const std::string out = out_.string(), err = err_.string(), folder = scratch.path().string();
  started_ = now();
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    const int in = open("/dev/null", O_RDONLY), o = open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644),
              e = open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (in < 0 || o < 0 || e < 0 || dup2(in, 0) < 0 || dup2(o, 1) < 0 || dup2(e, 2) < 0) _exit(126);
    if (limits.stalled >= 0 && (dup2(limits.stalled, 1) < 0 || dup2(limits.stalled, 2) < 0)) _exit(126);
    if (chdir(folder.c_str()) != 0) _exit(126);
    if (limits.file_bytes) {
      const rlimit most{limits.file_bytes, limits.file_bytes};
      setrlimit(RLIMIT_FSIZE, &most);
    }
    execve(argv[0], argv.data(), environment.data());
    _exit(127);
  }
}

Child::~Child() {
  if (ended_) return;
  kill(pid_, SIGKILL);
  reap(true);
}

void Child::signal(int number) const {
  if (!ended_) kill(pid_, number);
}

bool Child::reap(bool block) {
  if (ended_) return true;
  pid_t got = 0;
  do {
    got = wait4(pid_, &status_, block ? 0 : WNOHANG, &result_.usage);
  } while (got < 0 && errno == EINTR);
  ended_ = got == pid_;
  return ended_;
}

bool Child::running() {
  return !reap(false);
}

bool Child::wait_for(const std::string& text) {
  for (;;) {
    const bool over = !running();
    if (has(read(err_), text)) return true;
    if (over) return false;
    if (now() - started_ > limits_.seconds) throw std::runtime_error("stderr never showed: " + text);
    pause_briefly();
  }
}

bool Child::wait_for_path(const fs::path& path) {
  for (;;) {
    const bool over = !running();
    if (fs::exists(path)) return true;
    if (over) return false;
    if (now() - started_ > limits_.seconds) throw std::runtime_error("never appeared: " + path.string());
    pause_briefly();
  }
}

Result Child::wait() {
  while (running()) {
    if (now() - started_ > limits_.seconds) {
      kill(pid_, SIGKILL);
      reap(true);
      throw std::runtime_error("engine took too long; stderr:\n" + read(err_));
    }
    pause_briefly();
  }
  result_.seconds = now() - started_;
  result_.killed = WIFSIGNALED(status_);
  result_.exit = result_.killed ? 128 + WTERMSIG(status_) : WEXITSTATUS(status_);
  result_.out = read(out_);
  result_.err = read(err_);
  return result_;
}

Result engine(const Scratch& scratch, const Args& args, Limits limits) {
  return Child(scratch, args, limits).wait();
}

std::string read(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::ostringstream text;
  text << in.rdbuf();  // ends where reading fails
  return text.str();
}

std::vector<std::string> numbers(const fs::path& run) {
  std::vector<std::string> out;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) {
    for (const char* key : {"tokens_per_second", "mfu", "step_seconds", "host_peak_bytes", "attempt"})
      line = std::regex_replace(line, std::regex("\"" + std::string(key) + "\":[^,}]*,?"), "");
    line = std::regex_replace(line, std::regex("\"wait_seconds\":\\{[^}]*\\},?"), "");
    out.push_back(line);
  }
  return out;
}

Result good(const Scratch& scratch, const Args& args) {
  const Result result = engine(scratch, args);
  INFO(result.err);
  REQUIRE(result.exit == 0);
  return result;
}

std::vector<Json> metrics(const fs::path& run) {
  std::vector<Json> out;
  std::istringstream lines(read(run / "metrics.jsonl"));
  for (std::string line; std::getline(lines, line);) out.push_back(Json::parse(line));
  return out;
}

std::vector<double> column(const fs::path& run, const std::string& key) {
  std::vector<double> out;
  std::ifstream in(run / "metrics.jsonl");
  for (std::string line; std::getline(in, line);) out.push_back(Json::parse(line).at(key).get<double>());
  return out;
}

Json state(const fs::path& run) {
  return Json::parse(read(run / "state.json"));
}

fs::path checkpoint(const fs::path& run, int64_t step) {
  std::string digits = std::to_string(step);
  return run / "checkpoints" / ("step-" + std::string(8 - digits.size(), '0') + digits);
}

std::map<std::string, std::string> tensors(const fs::path& run, int64_t step) {
  std::map<std::string, std::string> out;
  for (const std::string& name : names(checkpoint(run, step)))
    if (name != "manifest.json") out[name] = read(checkpoint(run, step) / name);
  return out;
}

std::vector<std::string> names(const fs::path& folder) {
  std::vector<std::string> out;
  std::error_code none;
  for (fs::directory_iterator it(folder, none), end; !none && it != end; it.increment(none))
    out.push_back(it->path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

bool has(const std::string& text, const std::string& part) {
  return text.find(part) != std::string::npos;
}

}  // namespace cli
