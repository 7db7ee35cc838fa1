#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Writes the tables of measured times into README.md, from the newest result file of each machine and topic.

    tools/readme_tables.py              rewrite the part of README.md between the markers
    tools/readme_tables.py --check      change nothing; exit 1 when that part is not what would be written
    tools/readme_tables.py --print      print it
    tools/readme_tables.py --root DIR   another tree (its README.md and bench/results/)
    tools/readme_tables.py --self-test  plant outdated and broken files and see that they are found

The markers are the lines <!-- results:begin --> and <!-- results:end -->.
"""

import argparse
import json
import os
import re
import sys
import tempfile

BEGIN = "<!-- results:begin -->"
END = "<!-- results:end -->"
NAME = re.compile(r"(\d{4}-\d{2}-\d{2})-([A-Za-z0-9_.]+)-([A-Za-z0-9_.-]+)\.json")
OWN = "nearlight"
COLLECTIVES = {
    "all_reduce": "AllReduce", "all_gather": "AllGather", "reduce_scatter": "ReduceScatter", "broadcast": "Broadcast",
    "reduce": "Reduce", "all_to_all": "AllToAll", "send_recv": "Send/Recv", "barrier": "Barrier",
}
MODES = {
    "kernel": "inside one kernel",
    "graph": "in a CUDA graph, per operation",
    "eager": "from the call to completion",
}
# The order in which modes are shown, and peers; other peers follow by name.
MODE_ORDER = ("graph", "kernel", "eager")
PEER_ORDER = ("nccl", "nccl_sym", "torch_symm_mem_one_shot", "torch_symm_mem_two_shot", "torch_nccl", "nvshmem", "openmpi")


# Variables that say where things are or what a test needs; the others steer what is measured.
PLACES = ("NEARLIGHT_LOG_DIR", "NEARLIGHT_REQUIRE_GPUS")


def command_of(content):
    """The command, with the NEARLIGHT_ variables that steered it in front."""
    steering = [f"{name}={value}" for name, value in sorted(content["env"].items())
                if name.startswith("NEARLIGHT_") and name not in PLACES]
    return " ".join(steering + [content["command"]])


class Problem(Exception):
    """What is wrong with a file, for a person."""


# ---- reading ----------------------------------------------------------------------------------------

def newest_files(folder):
    """[(machine, topic, path)] sorted, the newest file of each machine and topic."""
    newest = {}
    for name in sorted(os.listdir(folder)):
        if not name.endswith(".json"):
            continue
        match = NAME.fullmatch(name)
        if match is None:
            raise Problem(f"{name} is not named <yyyy-mm-dd>-<machine>-<topic>.json")
        newest[match.group(2), match.group(3)] = name  # names sort by date
    return [(machine, topic, os.path.join(folder, name)) for (machine, topic), name in sorted(newest.items())]


def read(path):
    try:
        with open(path, encoding="utf-8") as file:
            content = json.load(file)
    except (OSError, ValueError) as error:
        raise Problem(f"{os.path.basename(path)}: {error}") from error
    if not isinstance(content, dict) or content.get("schema") != 1:
        raise Problem(f"{os.path.basename(path)}: schema is not 1")
    return content


# ---- text -------------------------------------------------------------------------------------------

def size_text(size):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if size >= unit and size % unit == 0:
            return f"{size // unit} {name}"
    return f"{size} B"


def time_text(time_us):
    """About three significant digits, never fewer than the unit place."""
    if time_us >= 100:
        return f"{time_us:.0f}"
    if time_us >= 10:
        return f"{time_us:.1f}"
    return f"{time_us:.2f}"


def code(text):
    """Text as code: in a longer fence than any run of backquotes in it."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * (longest + 1)
    space = " " if text.startswith("`") or text.endswith("`") else ""
    return f"{fence}{space}{text}{space}{fence}".replace("\n", " ")


def median(values):
    """The nearest rank: a value that was measured."""
    return sorted(values)[(len(values) - 1) // 2]


class Cell:
    """All rows of one implementation at one size: one, or one for each place in the heap."""

    def __init__(self):
        self.rows = []

    def of(self, field):
        return median([row[field] for row in self.rows])


def tables_of(content):
    """The Markdown tables of one file, as (heading, lines), in the order to be shown."""
    groups = {}
    for row in content["rows"]:
        kind = (row["collective"], row["dtype"], row["op"], row["ranks"], row["mode"], row.get("scratch", 0),
                row.get("jobs", 1))
        cells = groups.setdefault(kind, {})
        cells.setdefault((row["bytes"], row["impl"]), Cell()).rows.append(row)

    def order(kind):
        collective, dtype, op, ranks, mode, scratch, jobs = kind
        return list(COLLECTIVES).index(collective), MODE_ORDER.index(mode), dtype, op, ranks, scratch, jobs

    for kind in sorted(groups, key=order):
        lines = table_of(groups[kind])
        if not lines:
            continue
        collective, dtype, op, ranks, mode, scratch, jobs = kind
        what = [COLLECTIVES[collective]] + [part for part in (dtype, op) if part != "none"]
        room = f", {size_text(scratch)} of scratch" if scratch else ""
        busy = f", {jobs} jobs at a time" if jobs > 1 else ""
        yield f"{' '.join(what)}, {ranks} rank{'s' if ranks != 1 else ''}, {MODES[mode]}{room}{busy}", lines


def table_of(cells):
    sizes = sorted({size for size, impl in cells if impl == OWN})
    found = {impl for size, impl in cells if impl != OWN and size in sizes}
    peers = [peer for peer in PEER_ORDER if peer in found] + sorted(found - set(PEER_ORDER))
    if not sizes:
        return []
    head = ["size", "nearlight p50", "p99"]
    for peer in peers:
        head += [f"{peer} p50", "speed-up"]
    head += ["/ speed of light", "/ limit"]
    lines = ["| " + " | ".join(head) + " |", "|" + " ---: |" * len(head)]
    places = 1
    for size in sizes:
        own = cells[size, OWN]
        places = max(places, len(own.rows))
        columns = [size_text(size), time_text(own.of("p50_us")), time_text(own.of("p99_us"))]
        for peer in peers:
            cell = cells.get((size, peer))
            if cell is None:
                columns += ["", ""]
            else:
                columns += [time_text(cell.of("p50_us")), f"{cell.of('p50_us') / own.of('p50_us'):.2f} x"]
        columns += [f"{own.of('ratio_sol'):.2f}", f"{own.of('ratio_limit'):.2f}"]
        lines.append("| " + " | ".join(columns) + " |")
    if places > 1:
        lines += ["", f"Each figure is the median of up to {places} measurements at different places of the heap."]
    return lines


def machine_text(content):
    machine = content["machine"]
    if machine["gpus"] > 0:
        parts = [f"{machine['gpus']} x {machine['gpu']}"]
        if machine["gpus"] > 1:
            parts.append(machine["link"])
        parts += [f"driver {machine['driver']}", f"CUDA {machine['cuda']}"]
        if machine["nccl"] != "none":
            parts.append(f"NCCL {machine['nccl']}")
    else:
        parts = [machine["cpu"]]
    return ", ".join(parts)


def floors_text(content):
    floors = [f"speed of light {content['sol_us']:.3g} us", f"store bandwidth {content['store_gbs']:.3g} GB/s"]
    if content["launch_floor_us"] is not None:
        floors.append(f"an empty kernel in a graph {content['launch_floor_us']:.2f} us")
    if content["launch_floor_pdl_us"] is not None:
        floors.append(f"with dependent launch {content['launch_floor_pdl_us']:.2f} us")
    return ", ".join(floors)


def section_of(path):
    """What one file gives; empty without rows of our own."""
    content = read(path)
    lines = []
    try:
        for heading, table in tables_of(content):
            lines += [f"**{heading}** (microseconds)", ""] + table + [""]
        if not lines:
            return []
        lines += [
            f"{machine_text(content)}; {floors_text(content)}. Measured {content['date'][:10]} at commit "
            f"{content['commit'][:12]} with {code(command_of(content))}.", ""]
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise Problem(f"{os.path.basename(path)}: not as schema 1 says: {error!r}") from error
    return lines


def generate(root):
    folder = os.path.join(root, "bench", "results")
    lines = []
    for _, _, path in newest_files(folder):
        lines += section_of(path)
    return "\n".join([BEGIN, ""] + (lines or ["Nothing has been measured yet.", ""]) + [END])


def replaced(readme, generated):
    """README's text with the part between the markers replaced."""
    if readme.count(BEGIN) != 1 or readme.count(END) != 1 or readme.index(BEGIN) > readme.index(END):
        raise Problem(f"README.md must hold {BEGIN} and then {END}, each once")
    return readme[:readme.index(BEGIN)] + generated + readme[readme.index(END) + len(END):]


def run(root, check):
    """Exit status."""
    path = os.path.join(root, "README.md")
    try:
        with open(path, encoding="utf-8") as file:
            before = file.read()
        after = replaced(before, generate(root))
    except (OSError, Problem) as error:
        print(f"readme_tables: {error}")
        return 1
    if before == after:
        print("readme_tables: README.md is up to date")
        return 0
    if check:
        print("readme_tables: README.md is not what bench/results/ says; run tools/readme_tables.py")
        return 1
    with open(path, "w", encoding="utf-8") as file:
        file.write(after)
    print("readme_tables: README.md rewritten")
    return 0


# ---- self-test --------------------------------------------------------------------------------------

def sample_row(impl, size, p50_us, **changes):
    row = {"collective": "all_reduce", "bytes": size, "dtype": "bf16", "op": "sum", "ranks": 2, "mode": "graph", "chain": 100,
           "impl": impl, "algorithm": "", "protocol": "", "grid": 0, "min_us": p50_us, "p50_us": p50_us,
           "p95_us": p50_us, "p99_us": p50_us * 1.5, "p999_us": None, "max_us": p50_us * 2, "samples": 1000, "wrong": 0,
           "ratio_sol": p50_us / 0.8, "ratio_limit": p50_us / 1.24}
    row.update(changes)
    return row


def sample_file(rows, **changes):
    content = {"schema": 1, "date": "2026-11-30T10:00:00Z", "commit": "0123456789abcdef", "command": "nearlight bench", "env": {},
               "machine": {"gpu": "GPU", "gpus": 2, "link": "NVLink", "driver": "580", "cuda": "13.0", "nccl": "2.28.9",
                           "cpu": "CPU"},
               "l2rtt_us": 0.14, "one_way_us": 0.66, "sol_us": 0.8, "store_gbs": 340.0, "launch_floor_us": 0.53,
               "launch_floor_pdl_us": 0.44, "rows": rows}
    content.update(changes)
    return content


class Tree:
    """A tree with a README and result files."""

    def __init__(self, root, readme=f"# Title\n\n{BEGIN}\nold\n{END}\n\nThe rest.\n"):
        self.root = root
        os.makedirs(os.path.join(root, "bench", "results"))
        self.write("README.md", readme)

    def write(self, path, content):
        with open(os.path.join(self.root, path), "w", encoding="utf-8") as file:
            file.write(content if isinstance(content, str) else json.dumps(content))

    def result(self, name, content):
        self.write(os.path.join("bench", "results", name), content)

    def readme(self):
        with open(os.path.join(self.root, "README.md"), encoding="utf-8") as file:
            return file.read()


def self_test():
    failed = []
    count = 0

    def expect(what, condition):
        nonlocal count
        count += 1
        if not condition:
            failed.append(what)

    silent = open(os.devnull, "w", encoding="utf-8")
    real, sys.stdout = sys.stdout, silent
    try:
        with tempfile.TemporaryDirectory() as root:
            tree = Tree(os.path.join(root, "a"))
            tree.result("2026-11-29-2xgpu-allreduce.json", sample_file([sample_row(OWN, 128, 9.99)]))
            good = sample_file([
                sample_row(OWN, 4096, 1.6), sample_row("nccl", 4096, 5.6), sample_row("zeta", 4096, 3.2),
                sample_row("nccl_sym", 4096, 4.8), sample_row(OWN, 128, 1.5), sample_row("nccl", 128, 4.5),
                sample_row("nccl", 256, 7.77), sample_row(OWN, 128, 250.4, mode="eager"),
                sample_row("nccl", 128, 2.0, mode="kernel")])
            tree.result("2026-11-30-2xgpu-allreduce.json", good)
            tree.result("2026-11-30-2xgpu-sol.json", sample_file([]))
            tree.write("bench/results/README.md", "not a result")
            expect("an outdated README fails", run(tree.root, True) == 1)
            expect("check changes nothing", "old" in tree.readme())
            expect("writing works", run(tree.root, False) == 0)
            expect("a written README passes", run(tree.root, True) == 0)
            text = tree.readme()
            expect("the rest stays", text.startswith("# Title\n") and text.endswith("\nThe rest.\n") and "old" not in text)
            expect("only the newest file is shown", "9.99" not in text)
            expect("head", "| size | nearlight p50 | p99 | nccl p50 | speed-up | nccl_sym p50 | speed-up | zeta p50 | speed-up "
                           "| / speed of light | / limit |" in text)
            expect("a row", "| 4 KiB | 1.60 | 2.40 | 5.60 | 3.50 x | 4.80 | 3.00 x | 3.20 | 2.00 x | 2.00 | 1.29 |" in text)
            expect("a missing peer is empty", "| 128 B | 1.50 | 2.25 | 4.50 | 3.00 x |  |  |  |  | 1.88 | 1.21 |" in text)
            expect("sizes ascend", text.index("| 128 B") < text.index("| 4 KiB"))
            expect("a peer without us does not count", "7.77" not in text and "256 B" not in text)
            expect("a mode without us is left out", MODES["kernel"] not in text)
            expect("another mode is another table", "| 250 |" in text and MODES["eager"] in text)
            expect("machine, date, command", "2 x GPU, NVLink, driver 580, CUDA 13.0, NCCL 2.28.9" in text
                   and "Measured 2026-11-30 at commit 0123456789ab with `nearlight bench`" in text)

            tree.result("2026-11-30-2xgpu-allreduce.json", sample_file(
                [sample_row(OWN, 4096, 1.6)], env={"NEARLIGHT_X": "1", "NEARLIGHT_LOG_DIR": "logs", "NCCL_Y": "0"}))
            run(tree.root, False)
            expect("what steered", "with `NEARLIGHT_X=1 nearlight bench`" in tree.readme())

            tree.result("2026-11-30-2xgpu-allreduce.json", sample_file([sample_row(OWN, 4096, 1.7)]))
            expect("another result makes it outdated", run(tree.root, True) == 1)
            tree.result("2026-11-30-2xgpu-allreduce.json", sample_file([sample_row(OWN, 128, p50) for p50 in (3, 1, 2)]))
            run(tree.root, False)
            expect("places: the median", "| 128 B | 2.00 |" in tree.readme() and "up to 3 measurements" in tree.readme())

            tree.result("2026-11-30-2xgpu-allreduce.json", sample_file(
                [sample_row(OWN, 128, 1.0, scratch=512), sample_row(OWN, 128, 3.0, scratch=4096)]))
            run(tree.root, False)
            expect("each scratch is a table", "| 128 B | 1.00 |" in tree.readme() and "| 128 B | 3.00 |" in tree.readme()
                   and ", 4 KiB of scratch**" in tree.readme() and "measurements at different" not in tree.readme())

            tree.result("2026-11-30-2xgpu-allreduce.json", sample_file(
                [sample_row(OWN, 128, 1.0), sample_row(OWN, 128, 3.0, jobs=2)]))
            run(tree.root, False)
            expect("two jobs are a table of their own", "| 128 B | 1.00 |" in tree.readme()
                   and "| 128 B | 3.00 |" in tree.readme() and ", 2 jobs at a time**" in tree.readme())

            cpu = sample_file([sample_row(OWN, 8, 0.3, mode="eager")], launch_floor_us=None, launch_floor_pdl_us=None,
                              command="a `b`")
            cpu["machine"].update(gpu="none", gpus=0, cpu="A processor, 2 CPUs")
            tree.result("2026-11-30-vm-allreduce.json", cpu)
            run(tree.root, False)
            expect("a CPU", "A processor, 2 CPUs; speed of light 0.8 us, store bandwidth 340 GB/s. Measured" in tree.readme())
            expect("backquotes", "`` a `b` ``" in tree.readme())

        broken = {
            "no JSON": ("2026-11-30-a-b.json", "{"),
            "another schema": ("2026-11-30-a-b.json", sample_file([], schema=2)),
            "a bad name": ("allreduce.json", sample_file([])),
            "a missing field": ("2026-11-30-a-b.json", sample_file([{"impl": OWN}])),
            "an unknown mode": ("2026-11-30-a-b.json", sample_file([sample_row(OWN, 8, 1, mode="fast")])),
        }
        for what, (name, content) in broken.items():
            with tempfile.TemporaryDirectory() as root:
                tree = Tree(os.path.join(root, "a"))
                tree.result(name, content)
                expect(f"{what} is found", run(tree.root, False) == 1 and "old" in tree.readme())
        for what, readme in {"no markers": "text\n", "one marker": f"{BEGIN}\n", "markers turned": f"{END}\n{BEGIN}\n",
                             "markers twice": f"{BEGIN}\n{END}\n" * 2}.items():
            with tempfile.TemporaryDirectory() as root:
                expect(f"{what}: found", run(Tree(os.path.join(root, "a"), readme).root, True) == 1)
        with tempfile.TemporaryDirectory() as root:
            tree = Tree(os.path.join(root, "a"))
            expect("no results", run(tree.root, False) == 0 and "Nothing has been measured yet." in tree.readme())
    finally:
        sys.stdout = real
        silent.close()
    for what in failed:
        print(f"self-test: failed: {what}")
    print(f"self-test: {count} cases, {len(failed)} failed")
    return 1 if failed else 0


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", default=os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    parser.add_argument("--check", action="store_true")
    parser.add_argument("--print", action="store_true", dest="show")
    parser.add_argument("--self-test", action="store_true")
    args = parser.parse_args()
    if args.self_test:
        return self_test()
    if args.show:
        try:
            print(generate(args.root))
        except (OSError, Problem) as error:
            print(f"readme_tables: {error}", file=sys.stderr)
            return 1
        return 0
    return run(args.root, args.check)


if __name__ == "__main__":
    sys.exit(main())
