#!/usr/bin/env python3
"""Checks docs/dev/cases.md: every test that it names exists, and every report that it must hold stands there with a test.

    tests/unit/cases_check.py               check the sources beside this script; exit 1 on a fault
    tests/unit/cases_check.py --self-test   plant faults and see that they are found
"""

import os
import re
import sys

ROOT = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..")
CASES = os.path.join("docs", "dev", "cases.md")
REQUIRED = ("A2 A3 A4 A5 A6 A7 A9 A10 A14 A16 A18 B16 B3 B4 B5 B7 B11 B12 B13 B14 B15 C5 C6 C7 C8 C9 C10 C11 C12 C13 D1 D5 D6 D7 D9"
            " A11 C1 D2 D3 D4 D8 E1 E2 E4 E5 E6 E7 E9 E10 E11 E12 E13 F4 F5 F8 F9 F10 F15 G1 G2 G3 G4 G7 H1 H2 H3 H4 H5 H7 H8".split()
            + ["1", "2", "3", "4", "5", "6", "8"])

TEST_NAME = re.compile(r"`(tests/[\w/]+\.(?:cpp|py)):(\w+)\.(\w+)`")
LINK = re.compile(r"\]\(([^)]*)\)")


def defines(path, source, suite, name):
    if path.endswith(".py"):
        body = re.search(r"^class %s\(.*?(?=^\S|\Z)" % suite, source, re.MULTILINE | re.DOTALL)
        return body is not None and re.search(r"^    def %s\(self" % name, body.group(0), re.MULTILINE) is not None
    return re.search(r"^(?:TEST|TEST_F|TEST_P|TYPED_TEST|TYPED_TEST_P|RC_GTEST_PROP)\(\s*%s,\s*%s\b" % (suite, name),
                     source, re.MULTILINE) is not None


def faults_of(text, read):
    """What is wrong in the table `text`; read(path) gives a source file's text, or None."""
    faults = []
    rows = {}
    for number, line in enumerate(text.splitlines(), 1):
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("|") or not cells or not re.fullmatch(r"[A-Z]?\d+", cells[0]):
            continue
        key = cells[0]
        if key in rows:
            faults.append("line %d: %s stands there twice" % (number, key))
        tests = TEST_NAME.findall(line)
        rows[key] = tests
        if not tests:
            faults.append("line %d: %s has no test" % (number, key))
        # What looks like a test but is not written like one would not be checked.
        if line.count("`tests/") != len(tests):
            faults.append("line %d: a test is not written `tests/FILE.cpp:Suite.Name` or `tests/FILE.py:Class.test_name`" % number)
        for path, suite, name in tests:
            source = read(path)
            if source is None:
                faults.append("line %d: no file %s" % (number, path))
            elif not defines(path, source, suite, name):
                faults.append("line %d: %s has no test %s.%s" % (number, path, suite, name))
        links = LINK.findall(line)
        if key[0].isalpha() and not links:
            faults.append("line %d: %s has no link to a report" % (number, key))
        for link in links:
            if not re.fullmatch(r"https://github\.com/[\w.-]+/[\w.-]+/(issues|pull)/\d+", link):
                faults.append("line %d: %s is no link to a report" % (number, link))
    for key in REQUIRED:
        if key not in rows:
            faults.append("no row for %s" % key)
    return faults


def read_source(path):
    try:
        with open(os.path.join(ROOT, path), encoding="utf-8") as file:
            return file.read()
    except FileNotFoundError:
        return None


def self_test():
    sources = {"tests/a.cpp": "TEST(Suite, Name) {\n}\n// TEST(Suite, Commented) {\nTEST_P(Other,\n       Name) {}\n",
               "tests/a.py": "class Suite(Base):\n    def test_it(self):\n        pass\n\nclass Other(Base):\n    def test_other(self):\n        pass\n"}
    link = "[x#1](https://github.com/x/x/issues/1)"
    good = "\n".join("| %s | %s | w | `tests/a.cpp:Suite.Name`<br>`tests/a.cpp:Other.Name`<br>`tests/a.py:Suite.test_it` | |" % (key, link)
                     for key in REQUIRED)
    row = "| A2 | " + link + " | w | `tests/a.cpp:Suite.Name`"
    planted = {
        "another name": good.replace("Suite.Name", "Suite.Other", 1),
        "a longer name": good.replace("Suite.Name", "Suite.Names", 1),
        "a name in a comment": good.replace("Suite.Name", "Suite.Commented", 1),
        "another suite": good.replace("Other.Name", "Another.Name", 1),
        "another file": good.replace("tests/a.cpp", "tests/b.cpp", 1),
        "no test": good.replace("`tests/a.cpp:Suite.Name`<br>`tests/a.cpp:Other.Name`<br>`tests/a.py:Suite.test_it`", "", 1),
        "another name in Python": good.replace("Suite.test_it", "Suite.test_other", 1),
        "another class": good.replace("Suite.test_it", "Third.test_it", 1),
        "a test written otherwise": good.replace("a.cpp:Suite.Name", "a.cpp Suite.Name", 1),
        "a missing row": "\n".join(good.splitlines()[1:]),
        "a row twice": good + "\n" + good.splitlines()[0],
        "no link": good.replace(link, "x#1", 1),
        "another link": good.replace("https://github.com/x/x/issues/1", "https://example.com/1", 1),
    }
    failures = []
    if row not in good or faults_of(good, sources.get):
        failures.append("faults in a table without any: %s" % faults_of(good, sources.get))
    for what, text in planted.items():
        if not faults_of(text, sources.get):
            failures.append("not found: %s" % what)
    for failure in failures:
        print(failure)
    print("%d planted faults, %d failures" % (len(planted), len(failures)))
    return 1 if failures else 0


def main():
    if sys.argv[1:] == ["--self-test"]:
        return self_test()
    text = read_source(CASES)
    faults = ["no file"] if text is None else faults_of(text, read_source)
    for fault in faults:
        print("%s: %s" % (CASES, fault))
    print("%d faults" % len(faults))
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
