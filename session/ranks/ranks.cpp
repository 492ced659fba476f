// SPDX-License-Identifier: Apache-2.0
#include "session/ranks/ranks.hpp"

#include <fcntl.h>
#include <fmt/format.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fstream>
#include <set>

#include "core/trace/ranks.hpp"
#include "session/config/config.hpp"
#include "session/json.hpp"
#include "session/ranks/common_error.hpp"
#include "session/ranks/groups.hpp"
#include "session/stamp.hpp"

namespace eng {
namespace {

std::optional<uint32_t> number(const Variable& variable, const char* name) {
  const char* text = variable(name);
  uint32_t value = 0;
  if (!text || !*text) return std::nullopt;
  const auto [end, error] = std::from_chars(text, text + std::strlen(text), value);
  if (error != std::errc() || *end) return std::nullopt;
  return value;
}

// Variables of launchers, most trusted first.
struct Launcher {
  const char *by, *rank, *size, *local_rank;
};
constexpr Launcher launchers[] = {
    {"mpirun", "OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_RANK"},
    {"srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", "SLURM_LOCALID"},
    {"an MPI that is not Open MPI", "PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID"},
    {"RANK and WORLD_SIZE", "RANK", "WORLD_SIZE", "LOCAL_RANK"},
};

std::string start_lines(uint32_t ranks, const std::string& arguments) {
  return fmt::format(
      "on one machine:  engine {0} --ranks {1}\nor with Open MPI:  mpirun -n {1} engine {0}\n"
      "or inside Slurm:  srun --mpi=pmix -n {1} engine {0}",
      arguments, ranks);
}

}  // namespace

Announced Announced::read(const Variable& variable) {
  Announced out;
  // A Slurm step with mpirun's own daemons, or with the one process that started mpirun, does not announce ranks.
  const bool mpirun = number(variable, "OMPI_COMM_WORLD_SIZE").has_value();
  for (const Launcher& l : launchers) {
    const auto rank = number(variable, l.rank), size = number(variable, l.size);
    if (!rank || !size || *size == 0 || *rank >= *size) continue;
    if (mpirun && l.rank != launchers[0].rank && std::strcmp(l.rank, "RANK") != 0) continue;
    if (out.by.empty()) {
      const bool open_mpi = &l == launchers || variable("PMIX_RANK") != nullptr;
      out = {*rank, *size, l.by, open_mpi, number(variable, l.local_rank)};
    } else if (*size > 1 && (out.size != *size || out.rank != *rank)) {
      if (out.size == 1) {  // a single process, which an outer launcher counts as one of many
        out = {*rank, *size, l.by, false, number(variable, l.local_rank)};
        continue;
      }
      throw Error(Exit::environment,
                  fmt::format("{} says that this is rank {} of {}, but {} (= {}) and {} (= {}) say rank {} of {}",
                              out.by, out.rank, out.size, l.rank, *rank, l.size, *size, *rank, *size),
                  "start the ranks with one launcher, and unset the variables of the other");
    }
  }
  return out;
}

void check_announced(const Announced& announced, uint32_t seen, const std::string& arguments) {
  if (announced.size == seen) return;
  const std::string text = fmt::format("{} announced {} ranks, but the communicator sees {}: each would train alone",
                                       announced.by, announced.size, seen);
  const std::string lines = start_lines(std::max(announced.size, seen), arguments);
  if (announced.by == "srun")
    throw CommonError(Exit::environment, text,
                      fmt::format("without --mpi=pmix Slurm starts processes that do not know each other; type\n"
                                  "  srun --mpi=pmix -n {} engine {}",
                                  announced.size, arguments));
  if (announced.by == "mpirun")
    throw Error(
        Exit::environment, text,
        "check that this mpirun belongs to the Open MPI that the mpi plugin was built with (mpirun --version, ldd)\n" +
            lines);
  throw Error(Exit::environment, text, lines);
}

void check_alone(const Variable& variable, const std::string& arguments) {
  const auto tasks = number(variable, "SLURM_NTASKS");
  if (!tasks || *tasks <= 1 || variable("SLURM_STEP_NUM_TASKS")) return;
  throw Error(Exit::environment,
              fmt::format("Slurm gave this job {} tasks, but this process was not started as a rank", *tasks),
              fmt::format("type  srun --mpi=pmix -n {0} engine {1}\nor, for ranks of this machine only,  engine {1} "
                          "--ranks N  (--ranks 1 for one)",
                          *tasks, arguments));
}

std::string processors() {
  std::string out = host_name();
  const CpuQuota quota = cpu_quota();
  const std::string end = quota.processors > 0 ? fmt::format("/{}", quota.threads()) : "";
  // The mask can be larger than cpu_set_t on big machines: enlarge it until it fits.
  for (size_t bytes = sizeof(cpu_set_t); bytes <= (size_t{1} << 16); bytes *= 2) {
    std::vector<unsigned char> mask(bytes, 0);
    if (sched_getaffinity(0, bytes, reinterpret_cast<cpu_set_t*>(mask.data())) != 0) continue;
    std::set<std::string> cores;  // hyper-threads counted once
    for (size_t k = 0; k < bytes * 8; ++k) {
      if (!(mask[k / 8] >> (k % 8) & 1)) continue;
      const std::string base = fmt::format("/sys/devices/system/cpu/cpu{}/topology/", k);
      std::string package, core;
      std::ifstream(base + "physical_package_id") >> package;
      const bool known = static_cast<bool>(std::ifstream(base + "core_id") >> core);
      cores.insert(known ? package + ":" + core : fmt::format("cpu{}", k));
    }
    return fmt::format("{} {}{}", out, fmt::join(cores, " "), end);
  }
  return out + " 0" + end;
}

int64_t threads_of(const std::string& mine, const std::vector<std::string>& all) {
  const auto cores = std::max<int64_t>(1, std::count(mine.begin(), mine.end(), ' '));
  const auto sharers = std::max<int64_t>(1, std::count(all.begin(), all.end(), mine));
  const size_t slash = mine.rfind('/');
  if (slash == std::string::npos) return std::max<int64_t>(1, cores / sharers);
  // Ranks that are bound to separate cores share their quota all the same.
  const std::string host = mine.substr(0, mine.find(' ') + 1), end = mine.substr(slash);
  const auto among = std::count_if(all.begin(), all.end(),
                                   [&](const auto& one) { return one.starts_with(host) && one.ends_with(end); });
  const int64_t quota = std::stoll(end.substr(1)) / std::max<int64_t>(1, among);
  return std::max<int64_t>(1, std::min(cores / sharers, quota));
}

void share_threads(Config& config, const std::string& mine, const std::vector<std::string>& all) {
  for (const char* name : {"device", "host"}) {
    Section& section = config.section(name);
    if (section.settings().count("threads") && section.integer("threads") == 0)
      section.set("threads", threads_of(mine, all), "derived");
  }
}

uint32_t ranks_per_sample(const Config& config) {
  const Section& parallel = config.section("parallel");
  return static_cast<uint32_t>(parallel.integer("tensor") * parallel.integer("context") * parallel.integer("pipeline"));
}

uint32_t data_ranks(const Config& config, uint32_t ranks) {
  const Section& parallel = config.section("parallel");
  const uint32_t same = ranks_per_sample(config);
  std::string keys;
  for (const char* key : {"tensor", "context", "pipeline"})
    if (const int64_t n = parallel.integer(key); n > 1)
      keys += fmt::format("{}parallel.{} = {}", keys.empty() ? "" : " x ", key, n);
  if (ranks % same)
    throw CommonError(Exit::usage, fmt::format("{} does not divide {} rank{}", keys, ranks, ranks == 1 ? "" : "s"),
                      fmt::format("--ranks {}, or another multiple of {}", (ranks / same + 1) * same, same));
  return ranks / same;
}

Ranks divided_ranks(const Config& config, const World& world) {
  data_ranks(config, world.size);
  const auto number = [&](const char* key) { return static_cast<uint32_t>(config.section("parallel").integer(key)); };
  Ranks out(world, number("tensor"), number("context"), number("pipeline"));
  out.virtual_stages = number("virtual_stages");
  const Section& reference = config.section("reference");
  if (out.pipeline > 1 && reference.has("from") && !reference.has("store"))
    out.reference_stages = out.virtual_stages, out.virtual_stages *= 2;
  return out;
}

void share_batch(Config& config, uint32_t ranks) {
  Section& train = config.section("train");
  const uint32_t data = data_ranks(config, ranks);
  if (!train.given("global_batch")) return;
  const int64_t whole = train.integer("global_batch"), micro = train.integer("micro_batch"), all = micro * data;
  if (whole % all != 0)
    throw CommonError(Exit::usage,
                      fmt::format("train.global_batch = {} is not a multiple of {} {}ranks x train.micro_batch = {}",
                                  whole, data, data == ranks ? "" : "data ", micro),
                      fmt::format("train.global_batch = {}", (whole / all + 1) * all));
  train.set("accumulate", whole / all, "derived");
}

std::string Parent::text() const {
  const Json all = Json::object(
      {{"socket", socket}, {"command", command}, {"terminal", terminal}, {"mpirun", mpirun}, {"ranks", ranks}});
  return all.dump(-1, true);
}

int local_socket(const std::string& name, bool listen) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  name.copy(address.sun_path + 1, sizeof(address.sun_path) - 1);
  const auto length = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  const auto* where = reinterpret_cast<const sockaddr*>(&address);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int failed =
      fd < 0 ? -1 : (listen ? ::bind(fd, where, length) || ::listen(fd, 1024) : ::connect(fd, where, length));
  if (failed) {
    const int error = errno;
    if (fd >= 0) ::close(fd);
    throw Error(Exit::environment,
                fmt::format("cannot make a local socket between the ranks and the command that starts them: {}",
                            std::strerror(error)));
  }
  return fd;
}

Link::~Link() {
  if (fd_ >= 0) ::close(fd_);
}

bool Link::open(const Announced& announced, const Variable& variable) {
  const char* text = variable(Parent::variable);
  if (!text) return false;
  const Json json = Json::parse_or_null(text);
  if (!json.is_object()) return false;
  const auto number = [&](const char* key) { return json.contains(key) ? json.at(key).integer() : 0; };
  parent_.socket = json.text_at("socket");
  parent_.command = json.text_at("command");
  parent_.terminal = json.text_at("terminal");
  parent_.mpirun = static_cast<pid_t>(number("mpirun"));
  parent_.ranks = static_cast<uint32_t>(number("ranks"));
  // mpirun may have ended before this request.
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != parent_.mpirun)
    throw Error(Exit::environment,
                fmt::format("{} is set, but this process is not one of those ranks", Parent::variable),
                fmt::format("unset {}", Parent::variable));
  fd_ = local_socket(parent_.socket, false);
  int err = -1;
  if (announced.rank == 0 && !parent_.terminal.empty())
    err = ::open(parent_.terminal.c_str(), O_WRONLY | O_NOCTTY | O_CLOEXEC);
  tell(Json::ordered({{"hello", announced.rank}, {"pid", ::getpid()}}));
  if (err < 0) {
    err = local_socket(parent_.socket, false);
    const std::string head = fmt::format("{{\"stderr\":{}}}\n", announced.rank);
    [[maybe_unused]] const ssize_t sent = ::send(err, head.data(), head.size(), MSG_NOSIGNAL);
  }
  ::dup2(err, STDERR_FILENO);
  ::close(err);
  return true;
}

void Link::tell(const Json& message) const noexcept try {
  if (fd_ < 0) return;
  const std::string line = message.dump(-1, true) + "\n";
  for (size_t sent = 0; sent < line.size();) {
    const ssize_t n = ::send(fd_, line.data() + sent, line.size() - sent, MSG_NOSIGNAL);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return;
    sent += static_cast<size_t>(n);
  }
} catch (...) {  // out of memory: the parent sees the connection close
}

}  // namespace eng
