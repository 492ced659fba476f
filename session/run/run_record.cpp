// SPDX-License-Identifier: Apache-2.0
#include "session/run/run_record.hpp"

#include <fmt/format.h>

#include <sstream>

#include "core/base/error.hpp"
#include "session/cards/device_section.hpp"
#include "session/checksum.hpp"
#include "session/json.hpp"
#include "session/planning/fits.hpp"
#include "session/report/context.hpp"
#include "session/shell.hpp"
#include "session/version.hpp"

namespace eng {
namespace {

// Hash of the parameters' names and shapes.
std::string model_hash(const Plan& plan) {
  std::string text;
  for (const TensorShare& t : parameters(plan)) text += fmt::format("{} {}\n", t.name, fmt::join(t.shape, " "));
  return Checksum::of(text);
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> out;
  std::istringstream in(text);
  for (std::string line; std::getline(in, line);) out.push_back(line);
  return out;
}

}  // namespace

void write_identity(const Opening& opening, const RunStart& start, const std::vector<Change>& changes) {
  const RunDir& run = *opening.place.dir;
  const Member& member = opening.member();
  const Registry& registry = *opening.opened.registry;
  const Config& config = start.config;
  Json plugins = Json::array();
  for (const auto& p : registry.loaded())
    plugins.push_back(Json::ordered({{"id", p.id}, {"version", p.version}, {"sha256", p.sha256}}));
  Json folders = Json::array();
  for (const auto& folder : opening.opened.plugin_folders) folders.push_back(folder.string());
  Json changed = Json::array();
  for (const Change& c : changes)
    changed.push_back(Json::ordered({{"key", c.key}, {"before", c.before}, {"now", c.now}}));
  const std::filesystem::path source = weights_source(config);
  const Peak peak = peak_of(start.setup.plan, beside(start.setup));
  Json identity =
      Json::ordered({{"version", version},
                     {"commit", commit},
                     {"build", ENG_ABI_DRAFT_ID},
                     {"command", member.command()},
                     {"plugins", std::move(plugins)},
                     {"data_hash", start.data.info().content_hash},
                     {"model_hash", model_hash(start.setup.plan)},
                     {"config_hash", opening.resolved->hash},
                     {"planned", Json::ordered({{"device_peak_bytes", peak.device}, {"host_peak_bytes", peak.host}})},
                     {"seeds", Json::ordered({{"seed", config.section("train").integer("seed")}})},
                     {"device", Json::ordered({{"plugin", start.setup.target.device},
                                               {"name", start.setup.target.info.name},
                                               {"parallel", start.setup.target.info.parallel}})},
                     {"ranks", member.size()},
                     {"hosts", member.hosts()},
                     {"attempt", run.attempt()},
                     {"started", utc_now(true)},
                     {"resumed_from", start.from ? Json(start.from->filename().string()) : Json()},
                     {"changes", std::move(changed)},
                     {"ended", nullptr},
                     {"from", source.empty() ? Json() : Json(std::filesystem::absolute(source).string())},
                     {"extra", Json::ordered({{"base_dir", std::filesystem::absolute(config.base_dir()).string()},
                                              {"plugin_folders", std::move(folders)}})}});
  if (const std::filesystem::path reference = reference_source(config); !reference.empty())
    identity["reference"] = Json::ordered(
        {{"from", std::filesystem::absolute(reference).string()}, {"hash", reference_weights(config, registry).hash}});
  if (const std::vector<std::string> choices = lines_of(opening.trainer->choices()); !choices.empty())
    identity["device"]["choices"] = choices;
  if (const auto scratch = workspace_of(start.setup.device)) identity["device"][workspace_key] = *scratch;
  if (opening.host_rate) identity["measured"] = Json::ordered({{"host_memory_bandwidth", *opening.host_rate}});
  if (!start.job.empty()) identity["job"] = start.job;
  identity["earlier"] = earlier_attempts(run.folder().inside());
  // A command line or host name need not be UTF-8.
  run.write("run.json", identity.dump(2, true) + "\n");
  std::filesystem::path given = run.path() / "config.toml";
  const bool keep = opening.opened.before && std::filesystem::exists(given);
  if (!keep) run.write("config.toml", config.source());
  run.write("config.resolved.toml", opening.resolved->text);
  run.write("plan.txt", plan_text(start.setup.plan, report_context(start.setup, config)));
}

Recorder::Recorder(const RunDir& run, const Trainer& trainer, TraceFile& trace, Listener& next, SecondPlace* second,
                   bool tensorboard, DeviceMonitor monitor)
    : run_(run),
      trainer_(trainer),
      trace_(trace),
      next_(next),
      second_(second),
      metrics_(run.metrics(), trainer.step(), run.attempt()),
      monitor_(std::move(monitor)) {
  if (tensorboard) events_.emplace(curves_.emplace(run.folder(), "tensorboard").inside(), trainer.step());
  state("running", 0);
}

void Recorder::step(const Metrics& measured, double seconds_left) {
  Metrics metrics = measured;
  metrics.device = monitor_.read();
  metrics_.append(metrics);
  if (events_) events_->append(Json::parse_or_null(metrics_line(metrics, run_.attempt()), true));
  next_.step(metrics, seconds_left);
  trace_.step(metrics.step);
  if (!second_) return;
  for (const std::string& text : second_->news()) alert(metrics.step, text);
}

void Recorder::alert(int64_t step, const std::string& text) {
  run_.log(fmt::format("step {}: {}", step, text));
  next_.alert(step, text);
}

void Recorder::check_there() const {
  if (run_.folder().place() == HeldFolder::Place::removed)
    throw Error(Exit::disk, run_.path().string() + " was removed while the run was going on; nothing can be saved");
}

void Recorder::saving() {
  check_there();
  metrics_.sync();
  next_.saving();
}

void Recorder::saved(const Saved& saved) {
  state("running", 0);  // before the checkpoint is announced: whoever reads of it may look there, or kill this process
  if (second_) second_->add(saved.path);
  next_.saved(saved);
  if (run_.folder().place() == HeldFolder::Place::same) return;
  const std::string found = run_.folder().found().string();
  throw Error(Exit::disk,
              fmt::format("{} was moved to {} while the run was going on; {} was saved there", run_.path().string(),
                          found, saved.path.filename().string()),
              "resume it there:  engine run " + shell_word(found));
}

void Recorder::ended(Exit exit, const std::string& over) const {
  state(exit == Exit::done ? "done" : "stopped", static_cast<int>(exit), over);
}

void Recorder::failed(Exit exit) const noexcept try {
  state("failed", static_cast<int>(exit));
} catch (const std::exception&) {
  // If the disk failed in the step, this fails too; only the first error is reported.
}

void Recorder::state(const char* status, int exit_code, const std::string& why) const {
  run_.write_state(status, trainer_.step(), trainer_.last_checkpoint(), exit_code, why);
}

}  // namespace eng
