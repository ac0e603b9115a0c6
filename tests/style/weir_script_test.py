"""Tests what a person sees of the `weir` script: installing, building, testing.

Each test runs the script in a folder of its own, where apt-get, bazel and the
other programs that it calls are short shell scripts that pretend.
"""

import os
import pathlib
import pty
import re
import shutil
import signal
import subprocess
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAMS = (
    "deploy/cli/weir_cli",
    "server/chief/weir_chief",
    "server/ps/weir_ps",
    "worker/weir_evaluator",
    "worker/weir_worker",
)
END_SECONDS = 60  # a command that takes longer hangs

APT = """
echo "$*" >>"$PRETEND/apt"
case "$*" in *" install "*) ;; *) exit 0 ;; esac
eval "${APT_DOES:-}"
"""

SUDO = """
[ -n "${SUDO_WORKS:-}" ] || exit 1
[ "$1" != -n ] || shift
export PRETEND_UID=0
exec "$@"
"""

# Builds the programs, then does what the test says.
BAZEL = """
case "$1" in info) echo "$PWD/bazel-bin"; exit 0 ;; esac
for program in $PROGRAMS; do
  mkdir -p "bazel-bin/$(dirname "$program")"
  printf '#!/bin/sh\\n' >"bazel-bin/$program"
  chmod +x "bazel-bin/$program"
done
mkdir -p bazel-bin/tests/fuzz
printf '#!/bin/bash\\n%s\\n' "${FUZZER_DOES:-}" >bazel-bin/tests/fuzz/small_fuzz
chmod +x bazel-bin/tests/fuzz/small_fuzz
eval "${BAZEL_DOES:-}"
"""

SLOW_APT = """
for n in 1 2 3 4 5; do
  echo "dlstatus:$n:${n}0.5000:Retrieving file ${n} of 214 (9s remaining)"
  sleep 1
done
echo "pmstatus:g++:37.5000:Unpacking g++ (amd64)"
sleep 2
"""

SLOW_BAZEL = """
echo "Analyzing: 6 targets (30 packages loaded)"
for n in 1 2 3 4 5 6 7 8 9; do
  echo "[1,20$n / 2,000] 3 / 40 tests; Compiling common/a$n.cc; 3s local"
  sleep 1
done
"""

# Of the test runs only that of the integration tests is red.
RED_BAZEL = """
echo "[7 / 20] Testing //tests/a:b_test; 3s local"
echo "INFO: From Linking tests/a/b_test:"
echo "/usr/bin/ld: net.o: in function 'f': warning: Using 'getaddrinfo' in"
case "$*" in
  *test_tag_filters=integration*)
    echo "FAIL: //tests/a:b_test (see $TEST_LOG)"
    echo "INFO: From Testing //tests/a:b_test:"
    echo "//tests/a:b_test  FAILED in 0.3s"
    exit 3 ;;
esac
"""

# A fuzzer that finds something.
RED_FUZZER = """
for word in "$@"; do
  case $word in -artifact_prefix=*) input=${word#*=}crash-1 ;; esac
done
touch "$input"
echo "a.cc:7: invariant broken: x > 0"
echo "artifact_prefix='./'; Test unit written to $input"
exit 77
"""

UNBUILT_BAZEL = """
[ "$1" = test ] || exit 0
echo "INFO: Found 3 test targets..."
echo "ERROR: BUILD:12:10: Compiling a.cc failed: (Exit 1)"
echo "/usr/bin/ld: net.o: in function 'f': warning: Using 'getaddrinfo' in"
echo "a.cc:7:1: error: no such name"
exit 1
"""


def packages(name: str) -> set[str]:
    """The packages that a list in deploy/ names."""
    lines = (ROOT / "deploy" / name).read_text().splitlines()
    return {line for line in lines if line and not line.startswith("#")}


def pinned(tool: str) -> str:
    """The version of a tool that deploy/lint_tools.txt names."""
    lines = (ROOT / "deploy/lint_tools.txt").read_text()
    return re.search(rf"(?m)^(?:@\w+/)?{tool}(?:==|@)(.+)$", lines)[1]


class Machine:
    """A copy of the script on a machine that pretends."""

    def __init__(self, folder: str, installed: set[str]):
        self.root = pathlib.Path(folder)
        for name in ("weir", "tools/progress.sh"):
            self._copy(name)
        for path in (ROOT / "deploy").glob("*.txt"):
            self._copy(f"deploy/{path.name}")
        self.pretend = self.root / "pretend"
        self.pretend.mkdir()
        listed = "".join(f"echo '{p} installed'\n" for p in sorted(installed))
        for name, does in {
            "apt-get": APT,
            "bazel": BAZEL,
            "dpkg-query": listed,
            "git": "",
            "id": "echo ${PRETEND_UID:-0}",
            "sudo": SUDO,
            "clang-format-14": "",
            "clang-tidy-14": "",
            "shellcheck": "",
        }.items():
            self.program(name, does)
        for name in ("find_toolkit", "check_toolkit_changes"):
            self._program(self.root / f"third_party/cuda/{name}.sh", "")
        self.cached = self.root / ".cache/weir"
        for tool in ("ruff==/bin/ruff", "buildifier@/buildifier"):
            name, program = re.split("==|@", tool)
            self._program(self.cached / f"{name}-{pinned(name)}{program}", "")
        (self.root / "tests/fuzz").mkdir(parents=True)
        (self.root / "tests/fuzz/small_fuzz.cc").touch()
        so = self.root / "bazel-bin/worker/compute/cuda/libweir_cuda.so"
        so.parent.mkdir(parents=True)
        so.touch()
        self.environment = {
            "HOME": folder,
            "PATH": f"{self.pretend}:/usr/bin:/bin",
            "PRETEND": str(self.pretend),
            "PROGRAMS": " ".join(PROGRAMS),
            "TERM": "xterm",
            "TMPDIR": folder,
        }

    def _copy(self, name: str) -> None:
        (self.root / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, self.root / name)

    @staticmethod
    def _program(path: pathlib.Path, does: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"#!/bin/bash\n{does}\nexit $?\n")
        path.chmod(0o755)

    def program(self, name: str, does: str) -> None:
        """Makes a program that the script finds on its PATH."""
        self._program(self.pretend / name, does)

    def apt_lines(self) -> list[str]:
        """The command lines that apt-get got."""
        return (self.pretend / "apt").read_text().splitlines()

    def run(self, *words: str, **environment: str) -> tuple[int, str]:
        """The status and the output of a command, where no terminal is."""
        done = subprocess.run(
            [self.root / "weir", *words],
            env=self.environment | environment,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=END_SECONDS,
            check=False,
        )
        return done.returncode, done.stdout

    def run_in_terminal(
        self, *words: str, interrupt_after: str = "", **environment: str
    ) -> tuple[int, str]:
        """The same in a terminal, where someone may press Ctrl-C."""
        pid, terminal = pty.fork()
        if pid == 0:
            signal.signal(signal.SIGINT, signal.SIG_DFL)
            os.execve(
                self.root / "weir",
                ["weir", *words],
                self.environment | environment,
            )
        output = ""
        end = time.monotonic() + END_SECONDS
        while time.monotonic() < end:
            try:
                read = os.read(terminal, 4096).decode(errors="replace")
            except OSError:  # the script has ended
                break
            output += read
            if interrupt_after and interrupt_after in output:
                os.write(terminal, b"\x03")
                interrupt_after = ""
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
        return os.waitstatus_to_exitcode(status), output


class WeirScriptTest(unittest.TestCase):
    """Each test makes one machine, fresh or with every package."""

    def machine(self, installed: set[str] | None = None) -> Machine:
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        if installed is None:
            installed = set()
            for path in (ROOT / "deploy").glob("*packages.txt"):
                installed |= packages(path.name)
        return Machine(folder, installed)

    def installed_by(self, *words: str) -> set[str]:
        """What a command installs on a fresh machine."""
        machine = self.machine(installed=set())
        machine.run(*words)
        (line,) = (a for a in machine.apt_lines() if " install " in a)
        return set(line.split("--no-install-recommends")[1].split())

    def test_training_installs_only_what_building_needs(self):
        self.assertEqual(
            self.installed_by("train", "job"), packages("packages.txt")
        )

    def test_formatting_installs_only_what_checks_of_sources_need(self):
        self.assertEqual(
            self.installed_by("format"), packages("lint_packages.txt")
        )

    def test_testing_installs_every_list(self):
        self.assertEqual(
            self.installed_by("test"),
            packages("packages.txt")
            | packages("lint_packages.txt")
            | packages("test_packages.txt"),
        )

    def test_building_needs_no_clang_and_no_torch(self):
        for name in ("clang-14", "clang-tidy-14", "python3-torch"):
            self.assertNotIn(name, packages("packages.txt"))

    def test_every_package_of_cuda_has_its_hash(self):
        for line in packages("cuda_packages.txt"):
            self.assertRegex(
                line, r"^[\w-]+==[\d.]+ --hash=sha256:[0-9a-f]{64}$"
            )
        self.assertIn("--require-hashes", (ROOT / "weir").read_text())

    def test_someone_without_root_is_told_the_command(self):
        machine = self.machine(packages("packages.txt") - {"g++"})
        status, output = machine.run("build", PRETEND_UID="1000")
        self.assertEqual(status, 2)
        self.assertIn(
            "su -c 'apt-get update && apt-get install -y "
            "--no-install-recommends g++'",
            output,
        )

    def test_someone_who_may_use_sudo_installs_with_it(self):
        machine = self.machine(packages("packages.txt") - {"g++"})
        status, output = machine.run(
            "build", PRETEND_UID="1000", SUDO_WORKS="yes"
        )
        self.assertEqual(status, 0, output)
        self.assertTrue(machine.apt_lines()[-1].endswith(" g++"))

    def test_the_line_tells_how_much_is_done_and_how_long_it_takes(self):
        machine = self.machine(packages("packages.txt") - {"g++"})
        status, output = machine.run_in_terminal(
            "build", APT_DOES=SLOW_APT, BAZEL_DOES=SLOW_BAZEL
        )
        self.assertEqual(status, 0, output)
        for expected in (
            r"\rweir: installing packages \d:\d\d, "
            r"file [345] of 214: downloading",
            r"\rweir: installing packages \d:\d\d, 37 %: Unpacking g\+\+",
            r"\rweir: building \d:\d\d, "
            r"1,20\d of 2,000, 3 of 40 tests: Compiling common/a",
            r"2,000, about 1\d minutes left, 3 of",
        ):
            self.assertRegex(output, expected)
        # The line is cleared at the end.
        self.assertTrue(output.endswith("\r\x1b[K"), repr(output[-80:]))

    def test_without_a_terminal_lines_are_plain_and_few(self):
        machine = self.machine()
        status, output = machine.run("build", BAZEL_DOES=SLOW_BAZEL)
        self.assertEqual(status, 0, output)
        self.assertRegex(
            output, r"\Aweir: building .*, 1,20\d of 2,000.*Compiling.*\n\Z"
        )
        self.assertNotRegex(output, r"[\r\x1b]")

    def test_a_build_that_is_up_to_date_prints_nothing(self):
        machine = self.machine()
        self.assertEqual(machine.run_in_terminal("build"), (0, ""))
        self.assertEqual(machine.run("build"), (0, ""))

    def test_ctrl_c_ends_with_130_and_clears_the_line(self):
        for bazel in ("trap 'exit 8' INT; sleep 50", "sleep 50"):
            status, output = self.machine().run_in_terminal(
                "build",
                interrupt_after="building",
                BAZEL_DOES=bazel,
            )
            self.assertEqual(status, 130, output)
            self.assertRegex(
                output, r"\r\x1b\[Kweir: interrupted during[^\r]*\r\n$"
            )

    def test_ctrl_c_ends_the_tests(self):
        status, output = self.machine().run_in_terminal(
            "test",
            interrupt_after="weir: unit tests",
            BAZEL_DOES="trap 'exit 8' INT; sleep 50",
        )
        self.assertEqual(status, 130, output)
        self.assertNotIn("binaries", output)

    def test_a_build_that_fails_shows_its_output_without_the_counts(self):
        status, output = self.machine().run(
            "build",
            BAZEL_DOES="echo '[1 / 2] Compiling a.cc'; echo 'INFO: this'\n"
            "echo 'a.cc:1: error: wrong'; exit 1",
        )
        self.assertEqual(status, 3)
        self.assertEqual(
            output,
            "INFO: this\na.cc:1: error: wrong\nweir: the build failed\n",
        )

    def test_apt_that_fails_shows_the_end_of_its_output(self):
        status, output = self.machine(set()).run(
            "build", APT_DOES="echo 'E: Unable to locate package x'; exit 100"
        )
        self.assertEqual(status, 3)
        self.assertIn("E: Unable to locate package x\n", output)
        (log,) = re.findall("the whole log is (.*)\n", output)
        self.assertTrue(pathlib.Path(log).exists())

    def test_a_red_stage_is_named_with_what_was_red(self):
        machine = self.machine()
        test_log = machine.root / "test.log"
        test_log.write_text(
            "".join(f"line {n}\n" for n in range(100)) + "expected 1, got 2\n"
        )
        machine.environment["BAZEL_DOES"] = RED_BAZEL
        status, output = machine.run("test", TEST_LOG=str(test_log))
        self.assertEqual(status, 1, output)
        self.assertRegex(output, r"(?m)^passed +0:0\d +format$")
        self.assertRegex(output, r"(?m)^started +integration tests, gcc -O2$")
        self.assertRegex(output, r"(?m)^FAILED +0:0\d +integration tests, gcc")
        self.assertEqual(output.count("FAILED"), 1)
        self.assertIn("    FAIL: //tests/a:b_test\n", output)
        self.assertIn("    line 61\n", output)
        self.assertNotIn("line 60\n", output)
        self.assertIn("    expected 1, got 2\n", output)
        self.assertEqual(
            output.splitlines()[-1], "14 passed, 1 failed, 7 skipped"
        )
        # What the linker warned of and how far Bazel was is in the log alone.
        self.assertNotIn("getaddrinfo", output)
        self.assertNotIn("Testing //tests", output)
        (log,) = re.findall(r"The whole log is (runs/test_logs/.*)", output)
        self.assertIn("getaddrinfo", (machine.root / log).read_text())
        self.assertLess(len(output.splitlines()), 84)

    def test_a_stage_says_how_many_tests_were_skipped(self):
        machine = self.machine()
        for folder, line in (
            ("cc", "[  SKIPPED ] 4 tests, listed below:"),
            ("cc", "[  SKIPPED ] A.B (0 ms)"),
            ("py", "OK (skipped=3)"),
            ("none", "OK"),
        ):
            log = machine.root / "bazel-testlogs" / folder / "test.log"
            log.parent.mkdir(parents=True, exist_ok=True)
            with log.open("a") as file:
                file.write(f"{line}\n")
        status, output = machine.run("test")
        self.assertEqual(status, 0, output)
        for stage in ("integration tests, gcc -O2", "simulated worlds"):
            self.assertRegex(
                output, rf"(?m)^passed +0:0\d +{stage}; 7 tests skipped$"
            )
        self.assertRegex(output, r"(?m)^passed +0:0\d +format$")

    def test_the_first_failure_of_a_long_test_is_shown(self):
        machine = self.machine()
        test_log = machine.root / "test.log"
        test_log.write_text(
            "[ RUN      ] A.B\n"
            "tests/a/b_test.cc:12: Failure\n"
            "the reason\n" + "".join(f"line {n}\n" for n in range(100))
        )
        machine.environment["BAZEL_DOES"] = RED_BAZEL
        status, output = machine.run("test", TEST_LOG=str(test_log))
        self.assertEqual(status, 1, output)
        self.assertIn("    tests/a/b_test.cc:12: Failure\n", output)
        self.assertIn("    the reason\n", output)
        self.assertIn("    line 99\n", output)
        self.assertLess(len(output.splitlines()), 84)

    def test_a_check_that_is_red_shows_its_first_error(self):
        machine = self.machine()
        machine.program(
            "clang-format-14",
            "for n in {1..9999}; do\n"
            'echo "a.cc:$n:1: error: code should be clang-formatted"\n'
            "done; exit 1",
        )
        status, output = machine.run("test")
        self.assertEqual(status, 1)
        self.assertIn("    a.cc:1:1: error: code should be clang", output)
        self.assertLess(len(output.splitlines()), 240)

    def test_a_build_error_among_tests_is_shown(self):
        machine = self.machine()
        status, output = machine.run("test", BAZEL_DOES=UNBUILT_BAZEL)
        self.assertEqual(status, 1)
        self.assertIn("    a.cc:7:1: error: no such name\n", output)
        self.assertNotIn("getaddrinfo", output)

    def test_in_a_terminal_each_stage_ends_as_one_line(self):
        status, output = self.machine().run_in_terminal(
            "test", BAZEL_DOES="[[ $* != *asan* ]] || sleep 4"
        )
        self.assertEqual(status, 0, output)
        self.assertNotIn("started", output)
        lines = [line.split("\x1b[K")[-1] for line in output.splitlines()]
        lines = [line for line in lines if line]
        self.assertRegex(lines[0], "^The logs are in runs/test_logs/")
        self.assertEqual(lines[-1], "15 passed, 0 failed, 7 skipped")
        for line in lines[1:-1]:
            if not line.endswith("only with --full"):
                self.assertRegex(line, r"^passed +\d+:\d\d    [A-Za-z]")
        self.assertRegex(output, r"\rweir: unit tests 0:0[34]")

    def test_a_fuzzer_says_how_many_inputs_it_tried(self):
        status, output = self.machine().run(
            "fuzz",
            "--seconds",
            "3",
            FUZZER_DOES="[[ $* == *-max_total_time=3* ]] || exit 1\n"
            "echo stat::number_of_executed_units: 70\n"
            "echo stat::average_exec_per_sec: 23",
        )
        self.assertEqual(status, 0, output)
        self.assertIn(
            "fuzz: small_fuzz: 70 inputs in 3 s, 23 a second\n", output
        )

    def test_what_a_fuzzer_finds_is_kept_and_shown(self):
        machine = self.machine()
        status, output = machine.run(
            "fuzz", "small_fuzz", FUZZER_DOES=RED_FUZZER
        )
        self.assertNotEqual(status, 0)
        self.assertIn("fuzz: small_fuzz: FAILED\n", output)
        self.assertIn("    a.cc:7: invariant broken: x > 0\n", output)
        (kept,) = re.findall("The input is (.*)\n", output)
        self.assertTrue((machine.root / kept).exists())

    def test_fuzz_names_the_fuzzers_for_a_wrong_word(self):
        status, output = self.machine().run("fuzz", "big_fuzz")
        self.assertEqual(status, 2)
        self.assertIn("there is no fuzzer 'big_fuzz': small_fuzz", output)
        status, output = self.machine().run("fuzz", "--seconds", "no")
        self.assertEqual(status, 2)
        self.assertIn("--seconds takes a number", output)

    def test_a_stage_whose_tool_cannot_be_had_is_skipped(self):
        machine = self.machine()
        shutil.rmtree(next(machine.cached.glob("buildifier-*")))
        machine.program("npm", "echo 'no network' >&2; exit 1")
        status, output = machine.run("test")
        self.assertEqual(status, 0, output)
        self.assertRegex(
            output, r"(?m)^skipped +0:0\d +BUILD files, buildifier$"
        )
        self.assertIn("    no network\n", output)
        self.assertEqual(
            output.splitlines()[-1], "14 passed, 0 failed, 8 skipped"
        )


if __name__ == "__main__":
    unittest.main()
