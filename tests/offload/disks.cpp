// SPDX-License-Identifier: Apache-2.0
#include "disks.hpp"

#include <dlfcn.h>
#include <fcntl.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <catch2/catch.hpp>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <stdexcept>

namespace disks {

Folder::Folder() {
  std::string pattern = (fs::temp_directory_path() / "engine-nvme-XXXXXX").string();
  if (!mkdtemp(pattern.data())) throw std::runtime_error("cannot make " + pattern);
  path = fs::canonical(pattern);
}
Folder::~Folder() {
  std::error_code none;
  fs::remove_all(path, none);
}

eng::Section section(const Given& given) {
  std::map<std::string, eng::Setting> settings;
  const auto put = [&](const char* key, eng::Value value) {
    settings[key] = eng::Setting{std::move(value), "config.toml:1", true};
  };
  put("nvme_paths", given.paths);
  if (given.block) put("nvme_block", given.block);
  if (given.depth) put("nvme_depth", given.depth);
  if (!given.direct) put("nvme_direct", false);
  return eng::Section("offload", std::move(settings));
}

namespace {

std::vector<std::string> lines;

const eng_tier* load() {
  const std::string path = std::string(ENGINE_PLUGIN_DIR) + "/offload/nvme.eng.so";
  void* const file = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!file) throw std::runtime_error(dlerror());
  const auto query = reinterpret_cast<eng_plugin_query_fn>(dlsym(file, "eng_plugin_query_1"));
  static eng_host host{};
  host.struct_size = sizeof host;
  host.log = [](const eng_host*, int32_t, const char* text, uint64_t length) { lines.emplace_back(text, length); };
  const eng_plugin* plugin = query(ENG_ABI_MINOR);
  if (plugin->start(&host, nullptr) != ENG_OK) throw std::runtime_error("start failed");
  return static_cast<const eng_tier*>(plugin->get_interface(ENG_TIER_KIND, "nvme"));
}

struct Sink {
  Answer answer;
  eng_error error{};
  Sink() {
    error.struct_size = sizeof error;
    error.data = this;
    error.set = [](eng_error* self, eng_status, const char* text, uint64_t length) {
      static_cast<Sink*>(self->data)->answer.text.assign(text, length);
    };
  }
  Answer of(eng_status status) {
    answer.status = status;
    return answer;
  }
};

void need(const Answer& answer) {
  if (answer.status != ENG_OK) throw std::runtime_error(answer.text);
}

Answer create(const Given& given, uint32_t rank, void** self) {
  const eng::Section keys = section(given);
  const eng::Options options(keys);
  Sink sink;
  return sink.of(table().create(options.get(), rank, self, &sink.error));
}

Answer alloc(Tier& tier, uint64_t bytes, void** self) {
  Sink sink;
  return sink.of(table().alloc(tier.self, bytes, self, &sink.error));
}

}  // namespace

const eng_tier& table() {
  static const eng_tier* const loaded = load();
  return *loaded;
}
const std::vector<std::string>& logged() {
  return lines;
}

Tier::Tier(const Given& given, uint32_t rank) {
  need(create(given, rank, &self));
}
Tier::~Tier() {
  table().destroy(self);
}
Answer refusal_of_create(const Given& given) {
  void* self = nullptr;
  const Answer answer = create(given, 0, &self);
  if (answer.status == ENG_OK) table().destroy(self);
  return answer;
}

Arena::Arena(Tier& of, uint64_t size) : tier(of), bytes(size) {
  need(alloc(tier, bytes, &self));
}
Arena::~Arena() {
  table().free(tier.self, self, bytes);
}
Answer Arena::read(uint64_t offset, void* to, uint64_t count) const {
  Sink sink;
  return sink.of(table().read(tier.self, self, offset, to, count, &sink.error));
}
Answer Arena::write(uint64_t offset, const void* from, uint64_t count) const {
  Sink sink;
  return sink.of(table().write(tier.self, self, offset, from, count, &sink.error));
}
Answer refusal_of_alloc(Tier& tier, uint64_t bytes) {
  void* self = nullptr;
  const Answer answer = alloc(tier, bytes, &self);
  if (answer.status == ENG_OK) table().free(tier.self, self, bytes);
  return answer;
}

std::string exercise(Tier& tier, uint64_t bytes, uint32_t seed, int rounds) {
  const Arena arena(tier, bytes);
  std::mt19937_64 random(seed);
  constexpr uint64_t slack = 4096;
  std::vector<char> model(bytes), memory(bytes + slack);
  for (int round = 0; round < rounds; ++round) {
    // Any start and length, and the aligned ones that a plan has.
    const bool whole = random() % 3 == 0;
    uint64_t from = random() % bytes, count = random() % (random() % 2 ? bytes : 9000);
    if (whole) from = from / 4096 * 4096, count = count / 4096 * 4096;
    count = std::min(count, bytes - from);
    const uint64_t shifts[] = {0, 1, 256, 512, random() % slack};
    const auto start = (reinterpret_cast<uintptr_t>(memory.data()) + 4095) / 4096 * 4096;
    char* at = reinterpret_cast<char*>(start);
    const uint64_t room = memory.size() - static_cast<uint64_t>(at - memory.data());
    const uint64_t shift = shifts[random() % 5];
    count = std::min(count, room > shift ? room - shift : 0);
    at += shift;
    const bool write = random() % 2;
    if (write) {
      for (uint64_t k = 0; k < count; ++k) at[k] = static_cast<char>(random() >> 13);
      std::copy(at, at + count, model.begin() + static_cast<std::ptrdiff_t>(from));
    } else {
      std::fill(at, at + count, 'x');
    }
    const Answer answer = write ? arena.write(from, at, count) : arena.read(from, at, count);
    const std::string what = "round " + std::to_string(round) + (write ? ", write of " : ", read of ") +
                             std::to_string(count) + " bytes at " + std::to_string(from) + ", memory + " +
                             std::to_string(shift) + ": ";
    if (answer.status != ENG_OK) return what + answer.text;
    if (std::memcmp(at, model.data() + from, count) != 0) return what + "other bytes";
  }
  const Answer answer = arena.read(0, memory.data(), bytes);
  if (answer.status != ENG_OK) return answer.text;
  return std::memcmp(memory.data(), model.data(), bytes) == 0 ? "" : "other bytes at the end";
}

std::vector<int> open_files(const fs::path& folder) {
  std::vector<int> found;
  for (const auto& entry : fs::directory_iterator("/proc/self/fd")) {
    std::error_code none;
    const std::string target = fs::read_symlink(entry.path(), none).string();
    if (target.rfind(folder.string() + "/", 0) == 0) found.push_back(std::stoi(entry.path().filename()));
  }
  return found;
}

bool direct_possible(const fs::path& folder) {
  return refusal_of_create({.paths = {folder.string()}}).status == ENG_OK;
}
std::vector<bool> direct_choices(const fs::path& folder) {
  if (direct_possible(folder)) return {true, false};
  WARN("no O_DIRECT in " << folder << ": only nvme_direct = false is tested");
  return {false};
}

bool in_child(const std::function<bool()>& body) {
  std::fflush(nullptr);
  const pid_t child = fork();
  if (child < 0) return false;
  if (child == 0) {
    bool right = false;
    try {
      right = body();
    } catch (const std::exception& e) {
      std::fprintf(stderr, "%s\n", e.what());
    }
    _exit(right ? 0 : 1);
  }
  int status = 0;
  return waitpid(child, &status, 0) == child && WIFEXITED(status) && WEXITSTATUS(status) == 0;
}

bool refuse_call(int number, int error, int argument, uint32_t bits) {
  const auto no = static_cast<uint32_t>(error);
  const auto at = static_cast<uint32_t>(offsetof(seccomp_data, args) + 8 * static_cast<size_t>(std::max(argument, 0)));
  sock_filter steps[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, static_cast<uint32_t>(number), 0, 3),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, at),  // of a little-endian machine: the low half
      BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, bits, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | no),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  if (argument < 0) steps[1].jt = 2;
  const sock_fprog program{sizeof steps / sizeof *steps, steps};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) == 0;
}

}  // namespace disks
