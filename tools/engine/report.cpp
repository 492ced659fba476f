// SPDX-License-Identifier: Apache-2.0
// engine report.
#include <fmt/format.h>

#include <algorithm>
#include <fstream>

#include "core/base/error.hpp"
#include "core/base/text.hpp"
#include "session/report/page.hpp"
#include "session/run/run_dir.hpp"
#include "tools/engine/command.hpp"

namespace eng {
namespace {

// A report may be made again; another file is not replaced.
void refuse_foreign(const std::filesystem::path& file) {
  std::error_code none;
  if (!std::filesystem::exists(file, none)) return;
  if (!std::filesystem::is_regular_file(file, none))
    throw Error(Exit::usage, file.string() + " is not a regular file", "give another name with --out");
  std::string begin(std::string(page_mark).size(), '\0');
  std::ifstream(file, std::ios::binary).read(begin.data(), static_cast<std::streamsize>(begin.size()));
  if (begin != page_mark)
    throw Error(Exit::usage, file.string() + " exists and is no report of this engine", "give another name with --out");
}

void report(const std::vector<std::string>& names, const std::string& out) {
  std::vector<History> runs;
  for (const std::string& name : names) {
    runs.push_back(read_history(name));
    if (!runs.back().steps) print_err("note: {} has no step yet\n", name);
    if (runs.back().unreadable)
      print_err("note: {}: lines of metrics.jsonl that cannot be read and are left out: {}\n", name,
                runs.back().unreadable);
    if (runs.back().cut)
      print_err("note: {}: metrics.jsonl has a line of more than {} MiB; it and what follows it is left out\n", name,
                longest_metrics_line >> 20);
  }
  if (std::none_of(runs.begin(), runs.end(), [](const History& run) { return run.steps > 0; }))
    throw Error(Exit::data, "there is nothing to report: no run has taken a step");
  const std::string page = report_page(runs);
  if (out == "-") {
    return write_out(page);
  }
  refuse_foreign(out);
  write_atomic(out, page);
  print_err("wrote {}: {} {}, {} KiB\n", out, runs.size(), runs.size() == 1 ? "run" : "runs",
            (page.size() + 1023) / 1024);
}

}  // namespace

void add_report(CLI::App& app, Common&) {
  auto* command = app.add_subcommand("report", "one HTML page with the curves and numbers of runs");
  auto runs = std::make_shared<std::vector<std::string>>();
  auto out = std::make_shared<std::string>("report.html");
  command->add_option("runs", *runs, "run directories, drawn over each other")->required();
  command->add_option("-o,--out", *out, "the file to write, report.html by default; - is stdout");
  command->callback([runs, out] { report(*runs, *out); });
}

}  // namespace eng
