// SPDX-License-Identifier: Apache-2.0
// A command line as a shell divides it.
#include "session/convert/words.hpp"

#include <algorithm>
#include <cctype>
#include <map>

#include "core/base/error.hpp"

namespace eng::converter {
namespace {

// True if a command begins here, after a line that is not continued. Pasted flags go on.
bool begins_command(const std::string& line, std::size_t at) {
  static const Words commands = {
      "export",  "python",  "python3", "torchrun", "deepspeed", "accelerate", "srun",
      "mpirun",  "mpiexec", "nohup",   "bash",     "sh",        "cd",         "source",
      "set",     "echo",    "mkdir",   "sleep",    "wait",      "module",     "conda",
      "pip",     "if",      "fi",      "for",      "do",        "done",       "llamafactory-cli",
      "axolotl", "trl",     "exec",    "time",     "numactl",   "env",        "eval",
      "unset",   "then",    "else",    "uv",       "date"};
  at = line.find_first_not_of(" \t\r\n", at);
  if (at == std::string::npos) return false;
  const std::string word = line.substr(at, line.find_first_of(" \t\r\n=", at) - at);
  const std::size_t end = at + word.size();
  const bool assigned =
      end < line.size() && line[end] == '=' && !word.empty() && word[0] != '-' &&
      word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789") == std::string::npos;
  return assigned || among(commands, word.substr(word.rfind('/') + 1));
}

// NAME=VALUE
bool is_assignment(const std::string& word) {
  const auto equals = word.find('=');
  return equals != std::string::npos && equals > 0 && word[0] != '-' && is_name(word.substr(0, equals)) &&
         word.find_first_of(".-") >= equals;
}

// $NAME and ${NAME}, as far as the text says them.
std::string with_values(std::string word, const std::map<std::string, std::string>& variables) {
  for (std::size_t at = word.find('$'); at != std::string::npos; at = word.find('$', at + 1)) {
    const bool braces = word.compare(at, 2, "${") == 0;
    const std::size_t begin = at + (braces ? 2 : 1);
    std::size_t end = begin;
    while (end < word.size() && (std::isalnum(static_cast<unsigned char>(word[end])) || word[end] == '_')) ++end;
    const auto found = variables.find(word.substr(begin, end - begin));
    if (found == variables.end() || (braces && (end >= word.size() || word[end] != '}'))) continue;
    if (word.size() + found->second.size() > (std::size_t{1} << 20)) break;
    word.replace(at, end - at + (braces ? 1 : 0), found->second);
    at += found->second.size();
    if (at == 0) continue;
    --at;
  }
  return word;
}

// `bash -c "COMMAND"` is COMMAND. A variable that stands alone is as many words as it has.
Words opened(const Words& words, const std::map<std::string, std::string>& variables) {
  Words out;
  for (std::size_t k = 0; k < words.size(); ++k) {
    const bool shell = words[k] == "bash" || words[k] == "sh";
    if (shell && k + 2 < words.size() && (words[k + 1] == "-c" || words[k + 1] == "-lc")) {
      const Words inner = shell_words(words[k + 2]);
      out.insert(out.end(), inner.begin(), inner.end());
      k += 2;
      continue;
    }
    const std::string text = with_values(words[k], variables);
    if (is_variable(words[k]) && text != words[k] && text.find_first_of(" \t\n") != std::string::npos) {
      const Words inner = shell_words(text);
      out.insert(out.end(), inner.begin(), inner.end());
    } else {
      out.push_back(text);
    }
  }
  return out;
}

}  // namespace

bool among(const Words& words, const std::string& word) {
  return std::find(words.begin(), words.end(), word) != words.end();
}

Words shell_words(const std::string& line) {
  Words out;
  std::string word;
  bool open = false;
  char quote = 0;
  const auto close = [&] {
    if (open) out.push_back(std::move(word));
    word.clear();
    open = false;
  };
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
      const bool crlf = k + 2 < line.size() && line[k + 1] == '\r' && line[k + 2] == '\n';
      if (crlf) ++k;
      if (++k < line.size() && line[k] != '\n') word += line[k], open = true;
    } else if (c == '#' && !open && line.compare(k, 8, "#SBATCH ") == 0) {  // flags of Slurm's, as a comment
      const std::size_t end = std::min(line.find('\n', k), line.size());
      const Words flags = shell_words(line.substr(k + 8, end - k - 8));
      out.insert(out.end(), {";", "#SBATCH"});
      out.insert(out.end(), flags.begin(), flags.end());
      out.push_back(";");
      k = end - 1;
    } else if (c == '#' && !open) {
      while (k + 1 < line.size() && line[k + 1] != '\n') ++k;  // a comment
    } else if (c == '\n') {
      close();
      if (begins_command(line, k)) out.push_back(";");
    } else if (c == ';' || c == '|' || (c == '&' && k + 1 < line.size() && line[k + 1] == '&')) {
      close();
      out.push_back(c == '|' ? "|" : ";");
      while (k + 1 < line.size() && (line[k + 1] == '|' || line[k + 1] == '&')) ++k;
    } else if (std::isspace(static_cast<unsigned char>(c))) {
      close();
    } else {
      word += c;
      open = true;
    }
  }
  if (quote) throw Error(Exit::usage, "--args: a quote is not closed", "the shell removes one pair of quotes");
  close();
  return out;
}

bool is_name(const std::string& word) {
  return !word.empty() && !std::isdigit(static_cast<unsigned char>(word[0])) &&
         std::all_of(word.begin(), word.end(), [](char c) {
           return std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '.' || c == '-';
         });
}

bool is_upper(const std::string& name) {
  return std::none_of(name.begin(), name.end(), [](char c) { return c >= 'a' && c <= 'z'; });
}

bool is_variable(const std::string& word) {
  if (word.size() < 2 || word[0] != '$') return false;
  return word.find_first_not_of("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz_0123456789{}[]@*", 1) ==
         std::string::npos;
}

Words last_command(const Words& words, bool (*starts)(const Words&)) {
  Words out, other, environment, slurm;
  std::map<std::string, std::string> variables;
  for (std::size_t k = 0, begin = 0; k <= words.size(); ++k) {
    const bool end = k == words.size() || words[k] == ";" || words[k] == "|";
    if (!end) continue;
    const Words one(words.begin() + static_cast<std::ptrdiff_t>(begin), words.begin() + static_cast<std::ptrdiff_t>(k));
    const bool piped = begin > 0 && words[begin - 1] == "|";
    begin = k + 1;
    if (one.empty() || piped) continue;
    if (one[0] == "#SBATCH") {
      slurm.insert(slurm.end(), one.begin() + 1, one.end());
      continue;
    }
    const bool exported = one[0] == "export";
    std::size_t first = exported ? 1 : 0;
    while (first < one.size() && is_assignment(one[first])) ++first;
    if (exported || (first == one.size() && words.size() > one.size())) {
      for (const std::string& word : one) {
        if (!is_assignment(word)) continue;
        const auto equals = word.find('=');
        variables[word.substr(0, equals)] = with_values(word.substr(equals + 1), variables);
        if (is_upper(word.substr(0, equals))) environment.push_back(word);
      }
    } else {
      (starts(one) ? out : other) = one;
    }
  }
  if (out.empty()) out = other;
  if (!slurm.empty()) slurm.insert(slurm.begin(), "sbatch"), out.insert(out.begin(), slurm.begin(), slurm.end());
  out.insert(out.begin(), environment.begin(), environment.end());
  return opened(out, variables);
}

}  // namespace eng::converter
