#include "deploy/launcher/slurm_step.h"

#include <cstddef>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/string_view.h"
#include "common/base/status.h"

namespace weir {
namespace {

absl::Status BadList(absl::string_view list, absl::string_view why) {
  return Invalid("SLURM_STEP_NODELIST '", list, "' ", why,
                 "; Slurm writes n[0-3,7],other");
}

// Cuts a list at those commas that stand outside of brackets.
std::vector<std::string> CutOutsideBrackets(absl::string_view list) {
  std::vector<std::string> parts(1);
  int depth = 0;
  for (const char c : list) {
    depth += (c == '[') - (c == ']');
    if (c == ',' && depth == 0) {
      parts.emplace_back();
    } else {
      parts.back().push_back(c);
    }
  }
  return parts;
}

// The numbers of "0-3,07": as texts, since Slurm keeps leading zeros.
absl::StatusOr<std::vector<std::string>> Numbers(absl::string_view ranges) {
  std::vector<std::string> numbers;
  for (const absl::string_view range : absl::StrSplit(ranges, ',')) {
    const std::vector<absl::string_view> ends =
        absl::StrSplit(range, absl::MaxSplits('-', 1));
    int first = 0;
    int last = 0;
    if (!absl::SimpleAtoi(ends.front(), &first) ||
        !absl::SimpleAtoi(ends.back(), &last) || first < 0 || last < first ||
        last - first >= kSlurmHostsMax) {
      return BadList(ranges, "is no list of ranges");
    }
    const int width = static_cast<int>(ends.front().size());
    for (int number = first; number <= last; ++number) {
      numbers.push_back(absl::StrFormat("%0*d", width, number));
    }
  }
  return numbers;
}

// Adds the hosts of one pattern, which may have several brackets, to `hosts`.
absl::Status Expand(const std::string& begin, absl::string_view pattern,
                    std::vector<std::string>* hosts) {
  const size_t open = pattern.find('[');
  if (open == absl::string_view::npos) {
    if (hosts->size() >= kSlurmHostsMax) {
      return BadList(pattern, "names more than 4096 hosts");
    }
    hosts->push_back(absl::StrCat(begin, pattern));
    return absl::OkStatus();
  }
  const size_t close = pattern.find(']', open);
  if (close == absl::string_view::npos) {
    return BadList(pattern, "has a bracket that does not close");
  }
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> numbers,
                        Numbers(pattern.substr(open + 1, close - open - 1)));
  for (const std::string& number : numbers) {
    WEIR_RETURN_IF_ERROR(
        Expand(absl::StrCat(begin, pattern.substr(0, open), number),
               pattern.substr(close + 1), hosts));
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<std::string>> ExpandNodeList(
    const std::string& list) {
  std::vector<std::string> hosts;
  for (const std::string& pattern : CutOutsideBrackets(list)) {
    if (pattern.empty()) {
      return BadList(list, "has an empty name");
    }
    WEIR_RETURN_IF_ERROR(Expand("", pattern, &hosts));
  }
  return hosts;
}

absl::StatusOr<std::vector<int>> ParseTasksPerNode(const std::string& text) {
  std::vector<int> counts;
  for (absl::string_view part : absl::StrSplit(text, ',')) {
    int nodes = 1;
    const size_t times = part.find("(x");
    bool good = true;
    if (times != absl::string_view::npos) {
      good = part.back() == ')' &&
             absl::SimpleAtoi(part.substr(times + 2, part.size() - times - 3),
                              &nodes);
      part = part.substr(0, times);
    }
    int tasks = 0;
    good = good && absl::SimpleAtoi(part, &tasks) && tasks > 0 &&
           tasks <= kSlurmHostsMax && nodes > 0 &&
           counts.size() + static_cast<size_t>(nodes) <= kSlurmHostsMax;
    if (!good) {
      return Invalid("SLURM_STEP_TASKS_PER_NODE '", text,
                     "' is not what Slurm writes, as in 2,1(x3)");
    }
    counts.insert(counts.end(), static_cast<size_t>(nodes), tasks);
  }
  return counts;
}

absl::StatusOr<std::vector<std::string>> SlurmAddresses(
    const std::string& node_list, const std::string& tasks_per_node,
    int port_base) {
  WEIR_ASSIGN_OR_RETURN(const std::vector<std::string> hosts,
                        ExpandNodeList(node_list));
  WEIR_ASSIGN_OR_RETURN(const std::vector<int> counts,
                        ParseTasksPerNode(tasks_per_node));
  if (hosts.size() != counts.size()) {
    return Invalid("SLURM_STEP_NODELIST '", node_list, "' names ", hosts.size(),
                   " nodes, and SLURM_STEP_TASKS_PER_NODE '", tasks_per_node,
                   "' is about ", counts.size());
  }
  std::vector<std::string> addresses;
  for (size_t node = 0; node < hosts.size(); ++node) {
    for (int task = 0; task < counts[node]; ++task) {
      addresses.push_back(absl::StrCat(hosts[node], ":", port_base + task));
    }
  }
  return addresses;
}

}  // namespace weir
