// SPDX-License-Identifier: Apache-2.0
// A launch line: what stands before the command, the launchers with their flags, the script with its flags.
#include <algorithm>
#include <cctype>

#include "core/base/text.hpp"
#include "session/convert/entries.hpp"
#include "session/convert/words.hpp"

namespace eng::converter {
namespace {

const Words launchers = {"deepspeed",
                         "torchrun",
                         "accelerate",
                         "launch",
                         "mpirun",
                         "mpiexec",
                         "srun",
                         "python",
                         "python3",
                         "time",
                         "nohup",
                         "exec",
                         "env",
                         "sudo",
                         "uv",
                         "run",
                         "poetry",
                         "numactl",
                         "accelerate-launch",
                         "sbatch",
                         "salloc"};
const Words modules = {"torch.distributed.launch", "torch.distributed.run", "accelerate.commands.launch", "deepspeed",
                       "deepspeed.launcher.runner"};
// Programs of trainers, and the modules and scripts that are the same. After `what`, the next word is the job.
struct Program {
  const char *word, *trainer, *job;
};
const Program programs[] = {{"llamafactory-cli", "llamafactory", ""},
                            {"llamafactory.cli", "llamafactory", ""},
                            {"axolotl", "axolotl", ""},
                            {"axolotl.cli.train", "axolotl", "train"},
                            {"trl", "trl", ""},
                            {"trl.scripts.sft", "trl", "sft"},
                            {"sft.py", "trl", "sft"},
                            {"run_sft.py", "trl", "sft"},
                            {"dpo.py", "trl", "dpo"},
                            {"run_dpo.py", "trl", "dpo"},
                            {"grpo.py", "trl", "grpo"},
                            {"ppo.py", "trl", "ppo"},
                            {"kto.py", "trl", "kto"},
                            {"reward_modeling.py", "trl", "reward"},
                            {"pretrain_gpt.py", "megatron", "train"}};

// Number of ranks of a node, and of all.
const Words per_node = {"num_gpus", "nproc_per_node", "ntasks_per_node", "num_accelerators", "npernode", "ppn"},
            in_all = {"num_processes", "np", "n", "ntasks"}, nodes = {"num_nodes", "nnodes", "nodes", "N"};
// The launcher's flags that take no value.
const Words without_value = {"standalone",
                             "no_python",
                             "bind_cores_to_rank",
                             "multi_gpu",
                             "use_deepspeed",
                             "use_fsdp",
                             "no_local_rank",
                             "force_multi",
                             "allow_run_as_root",
                             "oversubscribe",
                             "cpu",
                             "u",
                             "quiet",
                             "debug",
                             "same_network",
                             "use_env",
                             "exclusive",
                             "l",
                             "label",
                             "overlap",
                             "no_ssh",
                             "no_ssh_check",
                             "save_pid",
                             "tpu",
                             "enable_cpu_affinity",
                             "use_megatron_lm",
                             "elastic_training",
                             "enable_each_rank_log",
                             "downcast_bf16",
                             "unbuffered",
                             "no_kill",
                             "use_parallelism_config",
                             "s",
                             "O",
                             "B"};

// A flag begins with '-'; a negative number is a value.
bool is_flag(const std::string& word) {
  return word.size() > 1 && word[0] == '-' && !std::isdigit(static_cast<unsigned char>(word[1])) && word[1] != '.';
}

bool is_script(const std::string& word) {
  return word.ends_with(".py") || word.ends_with(".sh");
}

bool is_file(const std::string& word) {
  return word.ends_with(".yaml") || word.ends_with(".yml") || word.ends_with(".json");
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

Value value_of_words(const Words& words) {
  if (words.size() == 1) return value_of_word(words[0]);
  std::vector<double> numbers;
  for (const std::string& text : words)
    if (const auto number = as_number(value_of_word(text))) numbers.push_back(*number);
  return numbers.size() == words.size() ? Value(numbers) : Value(words);
}

class Line {
 public:
  explicit Line(Words words) : words_(std::move(words)) {}

  Launch read() {
    environment();
    bool launcher = at_ < words_.size() && !is_flag(words_[at_]);  // flags alone are the script's
    while (at_ < words_.size()) {
      const std::string word = words_[at_++];
      if (word == ">" || word == ">>" || word == "2>&1" || word == "&" || word == "&>" || word == "|") break;
      if (is_flag(word))
        launcher = launcher ? of_launcher(word) : (of_script(word), false);
      else if (launcher)
        launcher = command(word);
      else
        plain(word);
    }
    count();
    return std::move(out_);
  }

 private:
  // NAME=VALUE before the command.
  void environment() {
    for (; at_ < words_.size() && !is_flag(words_[at_]); ++at_) {
      const std::string& word = words_[at_];
      if (word == "export" || word == "env") continue;
      const auto equals = word.find('=');
      if (equals == std::string::npos || equals == 0) return;
      const std::string name = word.substr(0, equals), value = word.substr(equals + 1);
      if (!is_upper(name)) return;
      if (name == "CUDA_VISIBLE_DEVICES" && !value.empty() && value.find('$') == std::string::npos)
        visible_ = 1 + std::count(value.begin(), value.end(), ',');
      if (name == "NPROC_PER_NODE" || name == "NNODES")
        ranks_flag(name == "NNODES" ? "nnodes" : "nproc_per_node", name, value);
    }
  }

  // A word that is no flag, before the script. Whether the next words are a launcher's too.
  bool command(const std::string& word) {
    const std::string base = word.substr(word.rfind('/') + 1);
    const auto equals = word.find('=');
    if (word.starts_with("$") && is_variable(word)) {  // $DISTRIBUTED_ARGS
      out_.ranks_open = word;
      return true;
    }
    if (equals != std::string::npos && is_name(word.substr(0, equals))) {
      if (!is_upper(word.substr(0, equals))) plain(word);
      return true;
    }
    if (base == "accelerate" || base == "accelerate-launch") out_.program = "accelerate", accelerate_ = true;
    srun_ |= base == "srun" || base == "sbatch" || base == "salloc";
    if (base != "launch" && among(launchers, base)) accelerate_ = base.starts_with("accelerate");
    if (among(launchers, base)) return true;
    program(base);
    out_.script = word;
    return false;
  }

  void program(const std::string& word) {
    for (const Program& one : programs) {
      if (word != one.word) continue;
      out_.program = one.trainer;
      out_.job = one.job;
      if (out_.job.empty() && at_ < words_.size() && !is_flag(words_[at_])) out_.job = words_[at_++];
    }
  }

  // A word that is no flag, after the script: key=value, or a file of arguments.
  void plain(const std::string& word) {
    const auto equals = word.find('=');
    std::string name = word.substr(0, equals);
    while (name.starts_with("+")) name.erase(0, 1);
    if (is_variable(word)) {  // $GPT_ARGS
      out_.variables.push_back(word);
    } else if (equals != std::string::npos && is_name(name)) {
      set(name, word.substr(0, equals), value_of_word(word.substr(equals + 1)));
    } else if (is_file(word)) {
      out_.files.push_back(word);
    } else {
      out_.left.push_back(word);
    }
  }

  static std::string name_of(const std::string& word) {
    std::string name = word.substr(std::min(word.find_first_not_of('-'), word.size()));
    name = name.substr(0, name.find('='));
    std::replace(name.begin(), name.end(), '-', '_');
    return name;
  }

  // As scripts do, the last one counts.
  void set(const std::string& name, const std::string& origin, Value value) {
    out_.flags.all[name] = Entry{std::move(value), "", origin};
  }

  // True if the next words are the launcher's too.
  bool of_launcher(const std::string& word) {
    std::string name = name_of(word);
    const auto equals = word.find('=');
    std::string value = equals == std::string::npos ? "" : word.substr(equals + 1);
    const bool more = at_ < words_.size() && !is_flag(words_[at_]);
    if (name == "module" || name == "m") {
      if (equals == std::string::npos && more) value = words_[at_++];
      if (among(modules, value)) {
        accelerate_ = value.starts_with("accelerate");
        if (accelerate_) out_.program = "accelerate";
        return true;
      }
      program(value);
      out_.script = value;
      return false;
    }
    if (word.size() > 2 && word[1] != '-' && (word[1] == 'N' || word[1] == 'n') &&
        std::isdigit(static_cast<unsigned char>(word[2]))) {  // srun -N4
      name = word.substr(1, 1);
      value = word.substr(2);
    } else if (equals == std::string::npos && more && !among(without_value, name) && !is_script(words_[at_])) {
      value = words_[at_++];
    }
    if (ranks_flag(name, word, value)) return true;
    if (accelerate_)
      out_.accelerate.all[name] = Entry{value.empty() ? Value(true) : value_of_word(value), "", word.substr(0, equals)};
    else
      out_.left.push_back(word.substr(0, equals));
    return true;
  }

  void of_script(const std::string& word) {
    const std::string name = name_of(word), dashes = word.substr(0, word.find('='));
    Words values;
    if (const auto equals = word.find('='); equals != std::string::npos) values.push_back(word.substr(equals + 1));
    if (values.empty())
      while (at_ < words_.size() && !is_flag(words_[at_]) && words_[at_] != "|" && words_[at_] != ">" &&
             words_[at_] != "2>&1" && words_[at_] != "&" && (values.empty() || !is_variable(words_[at_])))
        values.push_back(words_[at_++]);
    if (name.empty()) return;  // "--"
    if (values.size() == 1 && name.size() > 2 && ranks_flag(name, word, values[0])) return;
    if (values.empty())
      set(name, dashes, true);
    else
      set(name, dashes, value_of_words(values));
  }

  bool ranks_flag(const std::string& name, const std::string& word, const std::string& value) {
    if (name == "include" && slots(value) > 0) {
      included_ = slots(value);
      return true;
    }
    int64_t* into = among(per_node, name)                          ? &each_
                    : among(in_all, name)                          ? &all_
                    : among(nodes, name) || name == "num_machines" ? &nodes_
                                                                   : nullptr;
    if (!into) return false;
    const auto number = as_whole(value_of_word(value));
    const std::string flag = word.substr(0, word.find('='));
    if (!number) {  // --nproc_per_node=gpu, --nnodes 1:4, -n $N
      if (name != "n" || !value.empty())
        out_.ranks_open = flag + (word.find('=') == std::string::npos ? " " : "=") + value;
      if (into != &nodes_) *into = 0;
      return true;
    }
    if (*number < 1 || *number > 1'000'000)
      throw Error(Exit::usage, fmt::format("--args: {} {} is not a number of ranks", printable(word, 80),
                                           word.find('=') == std::string::npos ? printable(value, 80) : ""));
    *into = *number;
    if (into == &each_) all_ = 0;  // of an inner launcher
    if (into != &nodes_) from_ = flag;
    return true;
  }

  void count() {
    const std::pair<int64_t, std::string> found =
        all_              ? std::pair(all_, from_)
        : each_           ? std::pair(each_ * std::max<int64_t>(nodes_, 1), from_)
        : srun_ && nodes_ ? std::pair(nodes_, std::string("the nodes of srun"))
        : included_       ? std::pair(included_, std::string("--include"))
                          : std::pair(visible_, std::string("CUDA_VISIBLE_DEVICES"));
    if (!out_.ranks_open.empty() && !all_) return;  // a factor is missing
    out_.ranks = found.first;
    if (found.first) out_.ranks_from = found.second;
  }

  Words words_;
  std::size_t at_ = 0;
  Launch out_;
  bool accelerate_ = false, srun_ = false;
  int64_t each_ = 0, all_ = 0, nodes_ = 0, included_ = 0, visible_ = 0;
  std::string from_;
};

// True if a command starts something that trains.
bool starts(const Words& words) {
  static const Words idle = {"pkill", "kill", "cat", "tail", "grep", "ls",  "rm",
                             "cp",    "mv",   "sed", "git",  "pip",  "echo"};
  if (!words.empty() && among(idle, words[0])) return false;
  return std::any_of(words.begin(), words.end(), [](const std::string& word) {
    const std::string base = word.substr(word.rfind('/') + 1);
    static const Words programs_of_launchers = {"deepspeed", "torchrun", "accelerate", "mpirun",
                                                "mpiexec",   "srun",     "python",     "python3"};
    return among(programs_of_launchers, base) || base.ends_with(".py") ||
           std::any_of(std::begin(programs), std::end(programs), [&](const Program& one) { return base == one.word; });
  });
}

}  // namespace

Launch read_launch(const std::string& line) {
  if (line.size() > max_bytes) throw Error(Exit::usage, "--args is longer than 1 MiB");
  return Line(last_command(shell_words(line), starts)).read();
}

}  // namespace eng::converter
