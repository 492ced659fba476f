// SPDX-License-Identifier: Apache-2.0
// A launch line: words as a shell makes them, the launcher's flags, the script's flags.
#include <algorithm>
#include <cctype>

#include "core/base/text.hpp"
#include "session/convert/entries.hpp"

namespace eng::converter {
namespace {

using Words = std::vector<std::string>;

bool among(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

const Words launchers = {"deepspeed", "torchrun", "accelerate", "launch", "mpirun", "mpiexec",
                         "srun",      "python",   "python3",    "time",   "nohup",  "exec"};
const Words modules = {"torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch", "deepspeed"};
// Number of ranks of a node, and of all.
const Words per_node = {"num_gpus", "nproc_per_node"}, in_all = {"num_processes", "np", "n", "ntasks"},
            nodes = {"num_nodes", "nnodes"};
// The launcher's flags that take no value.
const Words without_value = {"standalone",
                             "no_python",
                             "bind_cores_to_rank",
                             "multi_gpu",
                             "use_deepspeed",
                             "no_local_rank",
                             "force_multi",
                             "allow_run_as_root",
                             "oversubscribe",
                             "cpu",
                             "u"};

Words split(const std::string& line) {
  Words out;
  std::string word;
  bool open = false;
  char quote = 0;
  for (std::size_t k = 0; k < line.size(); ++k) {
    const char c = line[k];
    if (quote) {
      if (c == quote)
        quote = 0;
      else if (c == '\\' && quote == '"' && k + 1 < line.size() && (line[k + 1] == '"' || line[k + 1] == '\\'))
        word += line[++k];
      else
        word += c;
    } else if (c == '"' || c == '\'') {
      quote = c;
      open = true;
    } else if (c == '\\') {
      if (++k < line.size() && line[k] != '\n') word += line[k], open = true;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      if (open) out.push_back(std::move(word));
      word.clear();
      open = false;
    } else {
      word += c;
      open = true;
    }
  }
  if (quote) throw Error(Exit::usage, "--args: a quote is not closed", "the shell removes one pair of quotes");
  if (open) out.push_back(std::move(word));
  return out;
}

// A flag begins with '-'; a negative number is a value.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) && word[1] != '.';
}

bool is_script(const std::string& word) {
  return word.ends_with(".py") || word.ends_with(".sh");
}

// "localhost:0,1,2@other:0" has 4 slots; 0 if it does not list them.
int64_t slots(const std::string& text) {
  int64_t out = 0;
  for (std::size_t start = 0; start <= text.size();) {
    const std::size_t end = std::min(text.find('@', start), text.size());
    const std::string host = text.substr(start, end - start);
    const auto colon = host.find(':');
    if (colon == std::string::npos) return 0;
    out += 1 + std::count(host.begin() + static_cast<std::ptrdiff_t>(colon), host.end(), ',');
    start = end + 1;
  }
  return out;
}

class Line {
 public:
  explicit Line(Words words) : words_(std::move(words)) {}

  Launch read() {
    environment();
    bool launcher = at_ < words_.size() && !is_flag(words_[at_]);  // flags alone are the script's
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (is_flag(word))
        launcher = launcher ? of_launcher(word) : (of_script(word), false);
      else if (launcher && !among(launchers, word.substr(word.rfind('/') + 1)))
        out_.script = word, launcher = false;
      else if (!launcher)
        out_.left.push_back(word);
    }
    count();
    return std::move(out_);
  }

 private:
  // NAME=VALUE before the command.
  void environment() {
    for (; at_ < words_.size() && !is_flag(words_[at_]); ++at_) {
      const std::string& word = words_[at_];
      const auto equals = word.find('=');
      if (equals == std::string::npos || equals == 0) return;
      if (word.substr(0, equals) == "CUDA_VISIBLE_DEVICES" && equals + 1 < word.size())
        visible_ = 1 + std::count(word.begin(), word.end(), ',');
    }
  }

  std::string name_of(const std::string& word) const {
    std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    name = name.substr(0, name.find('='));
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }

  // Whether the next words are the launcher's too.
  bool of_launcher(const std::string& word) {
    const std::string name = name_of(word);
    const auto equals = word.find('=');
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const bool more = at_ < words_.size() && !is_flag(words_[at_]);
    if (name == "module" || name == "m") {
      if (equals == std::string::npos && more) value = words_[at_++];
      if (among(modules, value)) return true;
      out_.script = value;
      return false;
    }
    if (equals == std::string::npos && more && !among(without_value, name) && !is_script(words_[at_]))
      value = words_[at_++];
    if (!ranks_flag(name, word, value)) out_.left.push_back(word.substr(0, equals));
    return true;
  }

  void of_script(const std::string& word) {
    const std::string name = name_of(word), dashes = word.substr(0, word.find('='));
    Words values;
    if (const auto equals = word.find('='); equals != std::string::npos) values.push_back(word.substr(equals + 1));
    if (values.empty())
      while (at_ < words_.size() && !is_flag(words_[at_])) values.push_back(words_[at_++]);
    if (name.empty()) return;  // "--"
    if (values.size() == 1 && name.size() > 2 && ranks_flag(name, word, values[0])) return;
    // As scripts do, the last one counts.
    Entry& entry = out_.flags.all[name] = Entry{true, "", dashes};
    if (values.size() == 1) entry.value = value_of_word(values[0]);
    if (values.size() < 2) return;
    std::vector<double> numbers;
    for (const std::string& text : values)
      if (const auto number = as_number(value_of_word(text))) numbers.push_back(*number);
    entry.value = numbers.size() == values.size() ? Value(numbers) : Value(values);
  }

  bool ranks_flag(const std::string& name, const std::string& word, const std::string& value) {
    if (name == "include" && slots(value) > 0) {
      included_ = slots(value);
      return true;
    }
    int64_t* into = among(per_node, name) ? &each_
                    : among(in_all, name) ? &all_
                    : among(nodes, name)  ? &nodes_
                                          : nullptr;
    if (!into) return false;
    const auto number = as_whole(value_of_word(value));
    if (!number) return name != "n";  // --nproc_per_node=gpu, --nnodes 1:4
    if (*number < 1 || *number > 1'000'000)
      throw Error(Exit::usage, fmt::format("--args: {} {} is not a number of ranks", printable(word, 80),
                                           word.find('=') == std::string::npos ? printable(value, 80) : ""));
    *into = *number;
    if (into != &nodes_) from_ = word.substr(0, word.find('='));
    return true;
  }

  void count() {
    const std::pair<int64_t, std::string> found = all_    ? std::pair(all_, from_)
                                                  : each_ ? std::pair(each_ * std::max<int64_t>(nodes_, 1), from_)
                                                  : included_
                                                      ? std::pair(included_, std::string("--include"))
                                                      : std::pair(visible_, std::string("CUDA_VISIBLE_DEVICES"));
    out_.ranks = found.first;
    if (found.first) out_.ranks_from = found.second;
  }

  Words words_;
  std::size_t at_ = 0;
  Launch out_;
  int64_t each_ = 0, all_ = 0, nodes_ = 0, included_ = 0, visible_ = 0;
  std::string from_;
};

}  // namespace

Launch read_launch(const std::string& line) {
  if (line.size() > max_bytes) throw Error(Exit::usage, "--args is longer than 1 MiB");
  return Line(split(line)).read();
}

}  // namespace eng::converter
