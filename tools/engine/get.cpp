// SPDX-License-Identifier: Apache-2.0
// engine model get, engine data get.
#include "session/hub/get.hpp"

#include <fmt/format.h>
#include <unistd.h>

#include <chrono>
#include <cstdlib>

#include "core/base/error.hpp"
#include "session/json.hpp"
#include "session/ranks/signals.hpp"
#include "session/report/progress.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

using Clock = std::chrono::steady_clock;

struct GetFlags {
  hub::Wish wish;
  std::string to;
  double stall = 60;
  bool json = false;
};

// A line that is redrawn on a terminal; nothing elsewhere.
class GetLine {
 public:
  void draw(const hub::Progress& at) {
    const auto now = Clock::now();
    if (!terminal_ || now - last_ < std::chrono::milliseconds(100)) return;
    if (!began_) began_ = Begin{now, at.done};
    last_ = now;
    const double seconds = std::chrono::duration<double>(now - began_->time).count();
    const double rate = seconds > 1 ? static_cast<double>(at.done - std::min(began_->done, at.done)) / seconds : 0;
    const double left = rate > 0 ? static_cast<double>(at.all - std::min(at.done, at.all)) / rate : -1;
    put_err(fmt::format("\r\x1b[K{} of {}  file {} of {}  {}/s  left: {}  {}", size_text(at.done), size_text(at.all),
                        at.number, at.files, size_text(static_cast<uint64_t>(rate)), duration_text(left),
                        for_terminal(at.file)));
    std::fflush(stderr);
    drawn_ = true;
  }
  void clear() {
    if (drawn_) put_err("\r\x1b[K");
    drawn_ = false;
  }

 private:
  struct Begin {
    Clock::time_point time;
    uint64_t done;
  };
  Clock::time_point last_{};
  std::optional<Begin> began_;
  const bool terminal_ = look_of(STDERR_FILENO).terminal;
  bool drawn_ = false;
};

Json json_of(const hub::Wish& wish, const hub::Got& got) {
  Json files = Json::array();
  for (const auto& [file, downloaded] : got.files)
    files.push_back(Json::ordered({{"path", file.path},
                                   {"size", file.size ? Json(*file.size) : Json()},
                                   {"content", file.content()},
                                   {"downloaded", downloaded}}));
  return Json::ordered({{"repository", wish.place.repository},
                        {"endpoint", wish.place.endpoint},
                        {"revision", wish.place.revision},
                        {"commit", got.commit},
                        {"folder", wish.to.string()},
                        {"bytes", got.bytes},
                        {"files", files}});
}

void get(GetFlags flags) {
  hub::Wish& wish = flags.wish;
  hub::check_repository(wish.place.repository, wish.place.kind);
  hub::check_revision(wish.place.revision);
  if (flags.stall < 1 || flags.stall > 3600)
    throw Error(Exit::usage, fmt::format("--stall {} is not between 1 and 3600 seconds", flags.stall));
  if (const char* offline = std::getenv("HF_HUB_OFFLINE"); offline && *offline && std::string(offline) != "0")
    throw Error(Exit::usage, "HF_HUB_OFFLINE forbids downloads", "unset it, or set it to 0");
  wish.place.endpoint = hub::endpoint_of_environment();
  wish.token = hub::token_of_environment();
  wish.to = flags.to.empty() ? wish.place.repository : flags.to;
  wish.pause = flags.stall / 60;
  const auto transport = hub::open_transport(flags.stall);
  const Signals signals;
  GetLine line;
  const hub::Watch watch{[&](const hub::Progress& at) { line.draw(at); },
                         [&](const std::string& text) {
                           line.clear();
                           print_err("note: {}\n", text);
                         }};
  hub::Got got;
  try {
    got = hub::get(wish, *transport, watch);
  } catch (const Error& e) {
    line.clear();
    if (!Signals::pending()) throw;
    throw Error(e.exit(), "stopped: what came is kept", fmt::format("the same command goes on from there"));
  }
  line.clear();
  size_t files = 0;
  for (const auto& one : got.files) files += one.downloaded;
  if (flags.json)
    put_out(json_of(wish, got).dump(-1, true) + "\n");
  else
    print_out("{}\n", wish.to.string());
  print_err("{} at commit {}: {} of {} files downloaded, {}\n", wish.place.repository, got.commit, files,
            got.files.size(), size_text(got.bytes));
}

}  // namespace

void add_get(CLI::App& group, hub::Kind kind) {
  const bool model = kind == hub::Kind::model;
  auto flags = std::make_shared<GetFlags>();
  flags->wish.place.kind = kind;
  flags->wish.place.revision = "main";
  auto* command = group.add_subcommand(
      "get",
      fmt::format("download a {} of a Hugging Face hub, or what is missing of it", model ? "model" : "data set"));
  command->add_option("repository", flags->wish.place.repository, "its name on the hub: org/name")->required();
  command->add_option("--to", flags->to, "the folder for its files; org/name by default");
  command->add_option("--revision", flags->wish.place.revision, "a branch, a tag or a commit; main by default");
  command
      ->add_option("--include", flags->wish.choice.include,
                   model ? "patterns of files, in place of weights in safetensors, config.json, tokenizer and templates"
                         : "patterns of files, in place of Parquet, Arrow, JSON, CSV and text")
      ->allow_extra_args(true);
  command->add_option("--exclude", flags->wish.choice.exclude, "patterns of files to leave out")
      ->allow_extra_args(true);
  command->add_option("--stall", flags->stall,
                      "seconds without data after which a connection is made anew, 60 by default; also the pauses "
                      "between tries, of 1/60 of it and more");
  command->add_flag("--json", flags->json, "print one JSON object on stdout");
  command->footer(
      "HF_ENDPOINT names another hub or a mirror, HF_TOKEN a token for gated and private repositories. Interrupted, "
      "the "
      "same command goes on.");
  command->callback([flags] { get(*flags); });
}

void add_model(CLI::App& app, Common&) {
  auto* command = app.add_subcommand("model", "download models");
  command->require_subcommand(1);
  add_get(*command, hub::Kind::model);
}

}  // namespace eng
