#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps the documentation true.

    check_docs.py reference --program NEARLIGHT           the pages of docs/reference against program and headers
    check_docs.py reference --program NEARLIGHT --write   write the pages that are made from the program
    check_docs.py commands --program NEARLIGHT --build DIR --work DIR   run every command of README and docs/guide
    check_docs.py self-test                               planted faults are found
"""

import argparse
import json
import os
import re
import shlex
import shutil
import subprocess
import sys

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
REFERENCE = os.path.join(ROOT, "docs", "reference")
HELP = ["--help", "sol --help", "bench --help", "compare --help", "report --help", "info --help", "demo --help",
        "tune --help", "dump --help", "trace --help", "run --help"]


def read(*parts):
    with open(os.path.join(ROOT, *parts), encoding="utf-8") as file:
        return file.read()


# ---- reference pages --------------------------------------------------------------------------------------

def cli_page(output_of):
    page = ("# The program\n\nMade from the program's own help by `tests/docs/check_docs.py`; a test compares the two. "
            "What it means when the\nprogram ends with 0 to 4 is in [errors.md](errors.md).\n")
    for arguments in HELP:
        page += "\n## nearlight %s\n\n```text\n%s\n```\n" % (arguments, output_of(arguments).strip("\n"))
    return page


def words(text):
    """Two versions of the parser break lines in different places."""
    return text.split()


def reference_faults(pages, output_of, c_header, cpp_header, status_header):
    found = []
    if words(pages["cli.md"]) != words(cli_page(output_of)):
        found.append("cli.md is not what the program says: check_docs.py reference --write")
    if pages["variables.md"] != output_of("info --variables"):
        found.append("variables.md is not what `nearlight info --variables` says: check_docs.py reference --write")
    numbers = {name for table in json.loads(output_of("info --json"))["route_tables"].values()
               for name in table["numbers"]}
    for name in sorted(numbers):
        if not re.search(r"^\| `%s` \|" % name, pages["route-table.md"], re.MULTILINE):
            found.append("route-table.md has no row for %s" % name)
    for name in re.findall(r"^NEARLIGHT_API [\w* ]+?\b(nearlight\w+)\(", c_header, re.MULTILINE):
        if "`%s`" % name not in pages["c-api.md"]:
            found.append("c-api.md does not name %s" % name)
    for name in re.findall(r"`(nearlight[A-Z]\w+)`", pages["c-api.md"] + pages["errors.md"]):
        if not re.search(r"\b%s\b" % name, c_header):
            found.append("there is no %s" % name)
    public = cpp_header[cpp_header.index("class Communicator"):]
    public = public[:public.index(" private:")]
    for name in re.findall(r"^  (?! |return)(?:static )?[\w:<> ]+? (\w+)\([^;]*?\{", public, re.MULTILINE):
        if not re.search(r"\b%s\(" % name, pages["cpp-api.md"]) and name != "check":
            found.append("cpp-api.md does not name %s" % name)
    codes = dict(re.findall(r"^  (\w+) = (\d+),", status_header, re.MULTILINE))
    for name, number in codes.items():
        if not re.search(r"^\| %s \| `nearlight\w+` \| `Code::%s` \|" % (number, name), pages["errors.md"], re.MULTILINE):
            found.append("errors.md has no row for code %s, %s" % (number, name))
    return found


def reference(program, write):
    def output_of(arguments):
        return subprocess.run([program] + arguments.split(), check=True, capture_output=True, text=True,
                              timeout=60).stdout

    if write:
        for name, text in (("cli.md", cli_page(output_of)), ("variables.md", output_of("info --variables"))):
            with open(os.path.join(REFERENCE, name), "w", encoding="utf-8") as file:
                file.write(text)
    pages = {name: read("docs", "reference", name) for name in os.listdir(REFERENCE)}
    found = reference_faults(pages, output_of, read("include", "nearlight", "nearlight.h"),
                             read("include", "nearlight", "nearlight.hpp"), read("src", "base", "status.hpp"))
    found += variable_faults()
    return found


# ---- variables --------------------------------------------------------------------------------------------

def variable_faults(root=ROOT):
    """Every NEARLIGHT_ variable that something reads is in the table, and the library reads none past it."""
    table = open(os.path.join(ROOT, "src", "base", "variables.cpp"), encoding="utf-8").read()
    table += open(os.path.join(ROOT, "src", "base", "variables.hpp"), encoding="utf-8").read()
    known = set(re.findall(r'"(NEARLIGHT_\w+)"', table))
    found = []
    for folder, folders, names in os.walk(root):
        folders[:] = [name for name in folders if name not in ("build", "dist", ".git", ".ccache")]
        for name in names:
            path = os.path.relpath(os.path.join(folder, name), root)
            if path == os.path.relpath(os.path.abspath(__file__), ROOT):
                continue  # its planted faults
            if not name.endswith((".cpp", ".hpp", ".cu", ".cuh", ".sh", ".py")) and path != "dev":
                continue
            with open(os.path.join(folder, name), encoding="utf-8") as file:
                text = file.read()
            for line in text.splitlines():
                reads = re.findall(r'getenv\("(NEARLIGHT_\w+)"\)', line)
                if path == "dev" or name.endswith(".sh"):
                    reads += re.findall(r"\$\{(NEARLIGHT_\w+)", line) + re.findall(r"export (NEARLIGHT_\w+)=", line)
                for variable in reads:
                    if variable not in known:
                        found.append("%s reads %s, which is not in src/base/variables.cpp" % (path, variable))
                if (path.startswith(("src/", "cli/", "include/")) and re.search(r"\bgetenv\s*\(", line)
                        and path != "src/base/variables.cpp" and "NEARLIGHT" in line):
                    found.append("%s reads the environment past base/variables.hpp" % path)
    return found


# ---- commands ---------------------------------------------------------------------------------------------

def blocks(text):
    """(language, file name or '', content) of each fenced block."""
    return [(match.group(1), match.group(2) or "", match.group(3))
            for match in re.finditer(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)]


def script_of(block, program, drop_in=True):
    """What a block of shell runs here. `./dev VERB` builds for minutes or runs all tests, this one among them:
    the verb must exist; those that run the program run the one that is built."""
    lines = []
    verbs = re.findall(r"^  (\S+)", read("dev").split("usage: ./dev", 1)[1].split("TXT", 1)[0], re.MULTILINE)
    for line in block.splitlines():
        if line.startswith("nearlight run ") and not drop_in:  # built without NCCL's headers
            lines.append("printf 'NOT RUN, for want of the drop-in: %%s\\n' %s >&2" % shlex.quote(line))
            continue
        match = re.match(r"\./dev (\S+)(.*)$", line)
        if not match:
            lines.append(line)
            continue
        verb, rest = match.groups()
        if verb not in verbs:
            lines.append("echo 'there is no ./dev %s' >&2; exit 1" % verb)
        elif verb == "demo":
            lines.append("'%s' demo%s" % (program, rest))
        elif verb == "build" and rest.strip() and '"name": "%s"' % rest.strip() not in read("CMakePresets.json"):
            lines.append("echo 'there is no preset%s' >&2; exit 1" % rest)
    return "set -euo pipefail\n" + "\n".join(lines) + "\n"


def stand_in_for_python(folder):
    """`pip install .` compiles for minutes, and tests/python/pip_install_test.py does it: here the caller's PYTHONPATH and
    NEARLIGHT_LIB stand for what it installs. torchrun is the one of the environment with PyTorch, where there is one."""
    torch = os.environ.get("NEARLIGHT_TORCH_PYTHON", "")
    run = "exec '%s' -m torch.distributed.run \"$@\"" % torch if torch else "echo 'NOT RUN, for want of PyTorch: torchrun' \"$@\" >&2"
    for tool, script in (("pip", 'test "$*" = "install ."'), ("torchrun", run)):
        with open(os.path.join(folder, tool), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\n%s\n" % script)
        os.chmod(file.name, 0o755)


def run_page(name, text, program, build, work):
    shutil.rmtree(work, ignore_errors=True)
    os.makedirs(os.path.join(work, "build"))
    os.symlink(build, os.path.join(work, "build", "release"))
    # ./dev installs no make, so a page must not need one.
    os.makedirs(os.path.join(work, "bin"))
    for tool in ("make", "gmake"):
        with open(os.path.join(work, "bin", tool), "w", encoding="utf-8") as file:
            file.write("#!/bin/sh\necho 'no make here' >&2\nexit 127\n")
        os.chmod(file.name, 0o755)
    stand_in_for_python(os.path.join(work, "bin"))
    os.symlink(os.path.join(ROOT, "examples"), os.path.join(work, "examples"))
    environment = dict(os.environ, HOME=work, CUDA_VISIBLE_DEVICES="",
                       PATH=os.path.join(work, "bin") + os.pathsep + os.environ["PATH"])
    found, count, exports = [], 0, []
    for language, path, content in blocks(text):
        if path:
            with open(os.path.join(work, path), "w", encoding="utf-8") as file:
                file.write(content)
        if language != "sh":
            continue
        # What a block exports holds for the rest of the page, as in one terminal.
        script = "\n".join(exports) + "\n" + script_of(content, program, os.path.exists(os.path.join(build, "cli", "libnearlight_nccl.so")))
        exports += [line for line in content.splitlines() if line.startswith("export ")]
        count += 1
        done = subprocess.run(["bash", "-c", script], cwd=work, capture_output=True, text=True, timeout=250,
                              stdin=subprocess.DEVNULL, env=environment)
        sys.stdout.write("".join(line for line in done.stderr.splitlines(True) if line.startswith("NOT RUN")))
        if done.returncode != 0:
            found.append("%s: this ended with %d:\n%s\n%s%s" % (name, done.returncode, content, done.stdout, done.stderr))
    return found, count


def commands(program, build, work):
    pages = ["README.md"] + sorted(os.path.join("docs", "guide", name)
                                   for name in os.listdir(os.path.join(ROOT, "docs", "guide")) if name.endswith(".md"))
    found, total = [], 0
    for page in pages:
        page_found, count = run_page(page, read(page), program, build, os.path.join(work, page.replace("/", "_")))
        print("%s: %d blocks of commands" % (page, count))
        found += page_found
        total += count
    if total < len(pages):
        found.append("hardly any commands were found")
    return found


# ---- self-test --------------------------------------------------------------------------------------------

def self_test():
    import tempfile
    failures = []

    def expect(condition, what):
        if not condition:
            failures.append(what)

    with tempfile.TemporaryDirectory() as work:
        page = "text\n```c a.c\nint x;\n```\n```sh\ntest -f a.c\nexport A=1\n```\n```sh\ntest $A = 1\n./dev test\n```\n"
        expect(run_page("p", page, "true", work, work + "/w") == ([], 2), "a good page")
        for bad in ("```sh\nfalse\n```\n", "```sh\n./dev fly\n```\n", "```sh\n./dev build mars\n```\n",
                    "```sh\nmake\n```\n", "```sh\nfalse\ntrue\n```\n", "```sh\nfalse | true\n```\n", "```sh\npip install torch\n```\n"):
            found, _ = run_page("p", bad, "true", work, work + "/w")
            expect(found, "not found: " + bad)
        page = "```sh\nnearlight run -- false\n```\n"
        expect(run_page("p", page, "true", work, work + "/w") == ([], 1), "the drop-in's commands without it")
        os.makedirs(work + "/cli")
        open(work + "/cli/libnearlight_nccl.so", "w", encoding="utf-8").close()
        expect(run_page("p", page, "true", work, work + "/w")[0], "the drop-in's commands with it")
        os.makedirs(work + "/t/src/x")
        for text, count in (('getenv("NEARLIGHT_CHECK")', 1), ('getenv("NEARLIGHT_FLY")', 2), ('getenv("HOME")', 0)):
            with open(work + "/t/src/x/a.cpp", "w", encoding="utf-8") as file:
                file.write(text + "\n")
            expect(len(variable_faults(work + "/t")) == count, "variables: " + text)

    header = "NEARLIGHT_API nearlightResult_t nearlightOne(int a);\nnearlightSuccess nearlightFail\n"
    cpp = "class Communicator {\n public:\n  int rank() const {\n  }\n private:\n"
    status = "  ok = 0,\n  fail = 4,\n"
    def output_of(arguments):
        return '{"route_tables": {"a": {"numbers": {"one": 1}}}}' if arguments == "info --json" else "help " + arguments

    pages = {"cli.md": cli_page(output_of), "variables.md": "help info --variables", "route-table.md": "| `one` | 1 |",
             "c-api.md": "`nearlightOne`", "cpp-api.md": "`comm.rank()`",
             "errors.md": "| 0 | `nearlightSuccess` | `Code::ok` |\n| 4 | `nearlightFail` | `Code::fail` |\n"}

    def faults(**changed):
        return reference_faults(dict(pages, **changed), output_of, header, cpp, status)

    expect(faults() == [], "good pages: %s" % faults())
    for name, text in (("cli.md", "help"), ("variables.md", "help"), ("c-api.md", ""), ("cpp-api.md", ""), ("route-table.md", "`one`"),
                       ("errors.md", pages["errors.md"].splitlines()[0]), ("c-api.md", "`nearlightOne` `nearlightTwo`")):
        expect(faults(**{name: text}), "not found: %s in %s" % (text, name))
    for failure in failures:
        print(failure)
    print("self-test: %d failures" % len(failures))
    return 1 if failures else 0


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["reference", "commands", "self-test"])
    parser.add_argument("--program")
    parser.add_argument("--build")
    parser.add_argument("--work")
    parser.add_argument("--write", action="store_true")
    args = parser.parse_args()
    if args.what == "self-test":
        return self_test()
    found = reference(args.program, args.write) if args.what == "reference" else \
        commands(args.program, args.build, args.work)
    for fault in found:
        print(fault)
    print("%d faults" % len(found))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
