// SPDX-License-Identifier: Apache-2.0
#include "session/planning/fits.hpp"

#include <fmt/format.h>
#include <sys/statvfs.h>

#include <algorithm>
#include <cerrno>

#include "core/base/error.hpp"
#include "session/planning/bookkeeping.hpp"
#include "session/planning/fit/text.hpp"
#include "session/ranks/ranks.hpp"
#include "session/ranks/room.hpp"

namespace eng {

// The overhead of a device is that of a run. Evaluating and generating read less of the code: measured.
static uint64_t unread(const Plan& plan) {
  return plan.table.buffer ? 0 : plan.next_logits.buffer ? 1'150'000 : 350'000;
}

// Code and buffers of the first rank alone, which keeps the directory of the run: measured.
constexpr uint64_t directory = 320'000;

Beside beside(const Setup& setup) {
  const eng_device_info& info = setup.target.info;
  Beside b;
  b.overhead = info.overhead_bytes + setup.comm_overhead;
  b.overhead -= std::min(b.overhead, unread(setup.plan) + (setup.plan.ranks.world.rank ? directory : 0));
  if (info.overhead_bytes) b.overhead += setup.model_overhead;  // else unknown
  b.bookkeeping = bookkeeping_bytes(setup.plan, setup.model, setup.stored);
  for (const Input& field : setup.plan.fields) b.staging += 2 * bytes(field.view.desc);
  b.data = setup.data;
  b.tiers = setup.tiers;
  b.job = setup.job;
  b.snapshot = setup.snapshot;
  b.copies = setup.copies;
  b.second = setup.second;
  b.host_arenas = setup.target.host_memory();
  b.device_overhead = info.device_overhead_bytes;
  b.local_ranks = setup.plan.ranks.world.local_size;
  if (const Setup* const texts = setup.sampling.get(); texts && !setup.plan.ranks.world.rank) {
    const ArenaBytes arenas = arena_bytes(texts->plan);
    const Beside own = beside(*texts);
    b.sampling = {own.bookkeeping + own.staging + own.tiers + arenas.host, arenas.device, arenas.storage};
  }
  return b;
}

Available available(const Setup& setup) {
  return {setup.target.info.total_bytes, setup.target.host_bytes, setup.target.arena_bytes, setup.storage.total};
}

uint64_t planned_peak(const Setup& setup) {
  return peak_of(setup.plan, beside(setup)).rank;
}

uint64_t machine_peak(const Setup& setup) {
  return peak_of(setup.plan, beside(setup)).machine;
}

Exit refusal(const Setup& setup) {
  const Excess more = excess(peak_of(setup.plan, beside(setup)), available(setup));
  return refusal(more, setup.target.host_memory());
}

Exit refusal(const Excess& more, bool host_memory) {
  if (!more.bytes) return Exit::done;
  if (more.storage) return Exit::disk;
  return !more.arena && (more.host || host_memory) ? Exit::host_memory : Exit::device_memory;
}

void check_device(Registry& registry, const Setup& setup) {
  if (!setup.target.card) const Device device(registry, setup.target.device, setup.device);
}

static void refuse_plan(const Setup& setup, const std::string& what, const std::string& help) {
  const Peak peak = peak_of(setup.plan, beside(setup));
  const Available all = available(setup);
  const Excess more = excess(peak, all);
  const bool host = more.host || setup.target.host_memory();
  const auto text = [](uint64_t n) { return format_bytes(static_cast<double>(n)); };
  if (more.arena)
    throw Error(refusal(setup),
                fmt::format("{} needs an arena of {}, device.memory is {}: {} too much", what, text(peak.arena),
                            text(all.arena), text(more.bytes)),
                help);
  if (more.storage)
    throw Error(refusal(setup),
                fmt::format("{} needs {} of storage, tier {} has {} free: {} too much", what, text(peak.storage),
                            setup.storage.tier, text(all.storage), text(more.bytes)),
                "free space there, give more folders on other disks, or keep fewer states there");
  const std::string place = more.host ? "a host" : fmt::format("device {}", setup.target.device);
  const uint64_t there = more.host ? all.host : all.device;
  // The control group limits this machine's memory.
  const Room room = host && !setup.target.card ? room_here() : Room();
  const std::string limit = !room.group.empty() && there == room.memory ? " (" + room.group + ")" : "";
  throw Error(refusal(setup),
              fmt::format("{} needs {}, {} has {}{}: {} too much", what, text(more.host ? peak.hosts : peak.machine),
                          place, text(there), limit, text(more.bytes)),
              help);
}

// The rank that stands for all of these ranks, which need not exist. The batch and the threads are divided among them.
World planned_world(Config& config, uint32_t ranks) {
  if (ranks == 1) ranks = ranks_per_sample(config);
  share_batch(config, ranks);
  // Without comm.describe.ranks_per_node it is assumed how many ranks share a machine's memory.
  const uint32_t local = std::min(ranks_per_host(config.section("comm"), described_card(config)), ranks);
  // Scratch is for as many threads as a rank has; the machines are assumed to be like this one.
  const std::string mine = processors();
  share_threads(config, mine, std::vector<std::string>(local, mine));
  return {0, ranks, 0, local};
}

bool fits(const Setup& setup) {
  return excess(peak_of(setup.plan, beside(setup)), available(setup)).bytes == 0;
}

void check_fits(const Config& config, Registry& registry, const Setup& setup) {
  if (fits(setup)) return;
  // A smaller batch does not help disks.
  if (excess(peak_of(setup.plan, beside(setup)), available(setup)).storage) refuse_plan(setup, "the plan", "");
  const World& world = setup.plan.ranks.world;
  std::string help;
  const Fit found = find_fit(config, registry, world, seconds_for_proposals);
  const auto edits = proposals(found);
  if (edits.empty() && !found.cut) help = "no smaller batch or sequence fits either: use a smaller model";
  for (const auto& e : edits) help += (help.empty() ? "any one of these fits:\n  " : "\n  ") + e;
  if (found.cut) help += (help.empty() ? "" : "\n") + cut_text(found);
  uint64_t kept = 0;
  for (const Buffer& b : setup.plan.buffers) kept += b.persistent && b.line == Line::activations ? b.bytes : 0;
  if (kept)
    help = fmt::format("keep fewer activations for the program: they take {}, which the following leaves out; {}",
                       format_bytes(static_cast<double>(kept)), help);
  const bool several = setup.target.host_memory() && world.local_size > 1;
  refuse_plan(setup, several ? fmt::format("the plan of {} ranks on this machine", world.local_size) : "the plan",
              help);
}

void check_job_fits(const Setup& setup, const std::string& name) {
  if (fits(setup)) return;
  refuse_plan(
      setup, "job " + name,
      "lower train.sequence_length or the windows of a micro-batch, set recompute.policy = \"full\", distribute "
      "states over more ranks (zero.plugin), put them on a tier ([offload]), or measure groups of tensors in turn "
      "(job.groups = 0, train.freeze)");
}

void count_data(Setup& setup, const Data& data) {
  setup.data = data.info().host_bytes;
  if (setup.data && !fits(setup))
    refuse_plan(setup, fmt::format("the plan, with {} of text in memory,", format_bytes(double(setup.data))),
                "text is kept in memory if it is compressed, in JSON Lines, or in small files, and read byte by byte: "
                "write it to plain files above 1 MiB, or use another data.tokenizer");
}

void check_evaluation_fits(const Config& config, Registry& registry, const Setup& setup) {
  if (fits(setup)) return;
  std::string help = "no smaller batch or sequence fits either: this machine has too little memory for the weights";
  const auto with = [&](const char* key, int64_t value, const char* note) {
    Config other = config;
    other.section("train").set(key, value, "edit");
    const Setup less = make_evaluation(other, registry);
    if (!eng::fits(less)) return false;
    help = fmt::format("train.{}={}{}: {}", key, value, note, format_bytes(static_cast<double>(machine_peak(less))));
    return true;
  };
  const Section& train = config.section("train");
  for (int64_t n = train.integer("micro_batch") / 2; n >= 1; n /= 2)
    if (with("micro_batch", n, "")) break;
  if (help.starts_with("no"))
    for (int64_t t = train.integer("sequence_length") / 2; t >= 16; t /= 2)
      if (with("sequence_length", t, " (less context)")) break;
  refuse_plan(setup, "evaluating", help);
}

uint64_t written_bytes(const Plan& plan) {
  uint64_t all = 0;
  for (const Tensor& t : plan.tensors)
    if (is_saved(t)) all += bytes(t.desc);
  return std::max(all, checkpoint_bytes(saved_tensors(plan)));
}

int64_t kept_checkpoints(const Config& config) {
  const Section& checkpoint = config.section("checkpoint");
  return std::max<int64_t>(checkpoint.integer("keep"), 1) + checkpoint.boolean("best");
}

uint64_t check_disk(const Config& config, const Plan& plan, const std::filesystem::path& directory, int64_t from,
                    size_t present) {
  std::error_code none;
  std::filesystem::path at = std::filesystem::absolute(directory, none);
  struct statvfs system {};
  int failed = 0;
  while ((failed = statvfs(at.c_str(), &system)) != 0)
    if (errno == ENOENT && at.has_relative_path())
      at = at.parent_path();
    else if (errno != EINTR)
      break;
  if (failed || !system.f_blocks) return UINT64_MAX;
  const uint64_t free = uint64_t{system.f_bavail} * system.f_frsize;
  // Without a limit (keep = 0) only the newest one is counted. While one is saved there is one more.
  const Section& checkpoint = config.section("checkpoint");
  const int64_t left = std::max<int64_t>(config.section("train").integer("steps") - from, 0),
                every = checkpoint.integer("every"), keep = kept_checkpoints(config);
  const bool last = checkpoint.boolean("last");
  const int64_t bests = checkpoint.boolean("best") ? left / config.section("train").integer("eval_every") + 1 : 0;
  const int64_t saves = (!every ? std::min<int64_t>(left, last)
                         : last ? (left + every - 1) / every
                                : left / every) +
                        bests;
  const auto more = static_cast<uint64_t>(
      std::min(saves, std::max<int64_t>(keep + 1 - static_cast<int64_t>(std::min<size_t>(present, 1u << 30)), 1)));
  const uint64_t each = written_bytes(plan);
  if (each && more > free / each) {
    const uint64_t need = more > UINT64_MAX / each ? UINT64_MAX : more * each;
    throw Error(Exit::disk,
                fmt::format("{} checkpoints of {} need {} ({} bytes), but {} has {} ({} bytes) free", more,
                            format_bytes(double(each)), format_bytes(double(need)), need, at.string(),
                            format_bytes(double(free)), free),
                "lower checkpoint.keep, or choose another run.out");
  }
  return free;
}

}  // namespace eng
