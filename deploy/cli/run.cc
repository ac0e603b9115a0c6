// weir run -- COMMAND: see deploy/launcher/run.h.
#include "deploy/launcher/run.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "deploy/cli/cluster_flags.h"
#include "deploy/cli/command.h"

namespace weir {

void AddRunCommand(CLI::App* app, const std::vector<std::string>& words,
                   Command* command) {
  auto options = std::make_shared<RunOptions>();
  // Words that are not behind --, which most often are a command whose -- was
  // forgotten: the message below says so.
  auto misplaced = std::make_shared<std::vector<std::string>>();
  CLI::App* run = AddSubcommand(
      app, "run",
      "run your own program as the workers of a local cluster:\n"
      "  weir run --ps 2 --workers 2 -- python train.py --epochs 3",
      [options, words, misplaced, command] {
        options->command = words;
        *command = [options, misplaced]() -> absl::StatusOr<int> {
          if (!misplaced->empty()) {
            return absl::InvalidArgumentError(
                "write -- before the command: weir run --workers 2 -- " +
                misplaced->front() + " ...");
          }
          return RunCommand(*options);
        };
      });
  AddClusterFlags(run, options.get(), &options->max_restarts);
  FindFlag(run, "--workdir")
      .Describe(
          "the run's directory; default with --chief runs/<script>-<time>, "
          "else none");
  AddOption(run, "--evaluator", &options->evaluator,
            "a command that runs as the evaluator, in quotes");
  // These go to the chief as they were written. The launcher does not know the
  // chief's defaults, so it passes on only what the user gave.
  for (const auto& named :
       {std::pair("--checkpoint_every_steps",
                  "the chief's: steps of sync, else pushes of all workers, "
                  "between checkpoints"),
        std::pair("--checkpoint_every_seconds",
                  "the chief's; default 60, or none with the one above"),
        std::pair("--keep",
                  "the chief's: newest checkpoints that stay; default 5")}) {
    const std::string flag = named.first;
    AddOptionFunction(
        run, flag,
        [options, flag](const std::string& value) {
          options->chief_flags.push_back(absl::StrCat(flag, "=", value));
        },
        named.second)
        .NonNegative();
  }
  AddOption(run, "command", misplaced.get(), "after --: program and arguments");
  SetFooter(
      run,
      "Ends with 0 when every copy does, else with the first failure's code.");
}

}  // namespace weir
