"""Changes the code under test in small ways and counts the changes that the tests notice.

    make coverage                                   # which test runs which line
    python -m tests.mutants --count 200 --seed 23 --json after.json
    python -m tests.mutants --compare before.json after.json

A mutant is one change in the body of a function of MODULES: a swapped comparison, a negated
condition, an integer off by one, a deleted call. The same seed yields the same mutants as long as
these modules stay the same. tests/mutant_runner.py runs the tests on them, cheap ones first.
"""

import argparse
import ast
import json
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from types import CodeType
from typing import Any

import coverage

MODULES = (
    "desk/dispatch desk/proofs desk/proposals desk/verdicts core/policy core/life desk/apply desk/plan desk/unowned_notes"
    " vault/folders web/sessions tools/fence core/text core/audit"
).split()
MIN_PER_MODULE = 3  # mutants of each module, if it has so many
KILLED = ("killed", "timed out")  # the outcomes of a mutant that the tests notice
JOB_VARIABLE = "POSTROOM_MUTANTS"  # the environment variable with the path of a job's file
SWAPS: dict[type[ast.cmpop], type[ast.cmpop]] = {
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE,
    ast.GtE: ast.Gt, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
}  # fmt: skip
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)


@dataclass
class Mutant:
    """A change of one module, and the outcome of the tests on it."""

    module: str
    line: int
    last_line: int
    before: str
    after: str
    source: str = field(repr=False)  # of the whole module, with the change
    tests: list[str] = field(default_factory=list)  # that run its lines
    outcome: str = (
        ""  # killed, timed out, survived, error, or cut: the time was up before its last test
    )
    failed_test: str = ""  # that failed or hung
    seconds: float = 0

    def __str__(self) -> str:
        return f"{self.module}.py:{self.line}: {self.before}  →  {self.after}"


def _changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield the possible changes of a node and of all below it: each a node, and its new text."""
    match node:
        case ast.Raise() | ast.Assert() | ast.JoinedStr() | ast.arguments():
            return  # error messages, assertions, and nodes whose positions Python 3.11 gets wrong
        case ast.Expr(value=ast.Call() | ast.Await()):
            yield node, "pass"
        case ast.Assign(targets=[ast.Attribute()]) | ast.AugAssign(target=ast.Attribute()):
            yield node, "pass"
        case ast.Return(value=ast.expr() as value) if ast.unparse(value) not in ("None", "False"):
            yield node, "return None"
        case ast.Compare(left=left, ops=ops, comparators=others):
            for at, op in enumerate(ops):
                new = [*ops[:at], SWAPS[type(op)](), *ops[at + 1 :]]
                yield node, ast.unparse(ast.Compare(left, new, others))
        case ast.BoolOp(op=op, values=values):
            other = ast.Or() if isinstance(op, ast.And) else ast.And()
            yield node, ast.unparse(ast.BoolOp(other, values))
        case ast.BinOp(left=left, op=ast.Add() | ast.Sub() as op, right=right):
            sign = ast.Sub() if isinstance(op, ast.Add) else ast.Add()
            yield node, ast.unparse(ast.BinOp(left, sign, right))
        case ast.Constant(value=bool() as value):
            yield node, str(not value)
        case ast.Constant(value=int() as value):
            yield from ((node, str(value + 1)), (node, str(value - 1)))
    for condition in _conditions(node):
        yield condition, f"not ({ast.unparse(condition)})"
    for name, child in ast.iter_fields(node):
        if name not in ("annotation", "returns", "decorator_list"):
            for each in child if isinstance(child, list) else [child]:
                if isinstance(each, ast.AST):
                    yield from _changes(each)


def _conditions(node: ast.AST) -> Iterator[ast.expr]:
    """Yield the conditions of a node, except comparisons that SWAPS already turns into their negation."""
    match node:
        case ast.If(test=test) | ast.While(test=test) | ast.IfExp(test=test):
            found = [test]
        case ast.comprehension(ifs=ifs):
            found = ifs
        case ast.match_case(guard=ast.expr() as guard):
            found = [guard]
        case _:
            return
    for each in found:
        if not isinstance(each, ast.Compare) or isinstance(each.ops[0], ORDERS):
            yield each


def _functions(tree: ast.AST) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the functions of a module and the methods of its classes."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        elif isinstance(node, ast.ClassDef):
            yield from _functions(node)


def _mutants_of(module: str) -> list[Mutant]:
    """Return every mutant of a module, in the order of its text."""
    text = Path("src/postroom", f"{module}.py").read_text()
    starts = [0]  # of each line, in bytes
    for line in text.encode().splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    codes, found = codes_in(compile(text, module, "exec")), []
    for function in _functions(ast.parse(text)):
        for node, new in (change for part in function.body for change in _changes(part)):
            assert isinstance(node, ast.expr | ast.stmt)
            assert node.end_lineno is not None
            assert node.end_col_offset is not None
            start = starts[node.lineno - 1] + node.col_offset
            end = starts[node.end_lineno - 1] + node.end_col_offset
            lines = "\n" * (
                node.end_lineno - node.lineno
            )  # so that the lines below keep their numbers
            replacement = f"({new}{lines})" if isinstance(node, ast.expr) else new + lines
            source = (text.encode()[:start] + replacement.encode() + text.encode()[end:]).decode()
            changed = codes_in(compile(source, module, "exec"))
            # A loaded function takes new code only if it has the same free variables.
            common = codes.keys() & changed.keys()
            if all(codes[key].co_freevars == changed[key].co_freevars for key in common):
                before = ast.unparse(node)
                found.append(Mutant(module, node.lineno, node.end_lineno, before, new, source))
    return found


def codes_in(code: CodeType) -> dict[tuple[str, int], CodeType]:
    """Return the code objects inside this one, by qualified name and first line."""
    inner = [const for const in code.co_consts if isinstance(const, CodeType)]
    found = {(each.co_qualname, each.co_firstlineno): each for each in inner}
    for each in inner:
        found |= codes_in(each)
    return found


def choose_mutants(count: int, seed: int) -> list[Mutant]:
    """Return `count` mutants; each module's share of them is its share of all possible mutants."""
    every = {name: _mutants_of(name) for name in MODULES}
    total = sum(map(len, every.values()))
    shares = {
        name: min(len(all_), max(MIN_PER_MODULE, count * len(all_) // total))
        for name, all_ in every.items()
    }
    shares[max(every, key=lambda name: len(every[name]))] += count - sum(shares.values())
    found = []
    for name, share in shares.items():
        places = random.Random(f"{seed} {name}").sample(range(len(every[name])), share)
        found += [every[name][place] for place in sorted(places)]
    return found


def _assign_tests(mutants: Iterable[Mutant], data: Path, durations: dict[str, float]) -> None:
    """Give each mutant the tests that run its lines.

    The cheapest case of each parametrized test comes first, then the second of each, and so on.
    """
    traced = coverage.CoverageData(str(data))
    traced.read()
    files = {name.partition("/src/postroom/")[2]: name for name in traced.measured_files()}
    contexts = {name: traced.contexts_by_lineno(files.get(f"{name}.py", "")) for name in MODULES}
    for mutant in mutants:
        lines = range(mutant.line, mutant.last_line + 1)
        tests = {test for line in lines for test in contexts[mutant.module].get(line, [])}
        cases: dict[str, int] = defaultdict(int)
        ranks = {}
        for test in sorted(tests & durations.keys(), key=lambda test: (durations[test], test)):
            ranks[test] = cases[test.partition("[")[0]]
            cases[test.partition("[")[0]] += 1
        mutant.tests = sorted(ranks, key=ranks.__getitem__)


def _start_job(mutants: list[Mutant], durations: dict[str, float], folder: Path) -> subprocess.Popen[bytes]:  # fmt: skip
    """Copy the checkout into this folder, and start pytest with `mutant_runner` on these mutants there."""
    copy = folder / "copy"
    listed = subprocess.run(
        ["git", "ls-files", "-coz", "--exclude-standard"], stdout=subprocess.PIPE, check=True
    )
    for name in listed.stdout.decode().split("\0"):
        if name and Path(name).exists():
            (copy / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(name, copy / name)
    job = folder / "job"
    job.write_text(
        json.dumps({"mutants": [asdict(each) for each in mutants], "durations": durations})
    )
    ignored = [f"--ignore=tests/{name}" for name in ("real", "crash", "browser")]
    plugins = [
        "-p",
        "tests.tracing",
        "-p",
        "tests.mutant_runner",
        "-p",
        "no:randomly",
        "-p",
        "no:xdist",
    ]
    return subprocess.Popen(
        [sys.executable, "-m", "pytest", "-q", *plugins, "-o", "timeout=0", *ignored, "tests"],
        cwd=copy,
        env=os.environ
        | {JOB_VARIABLE: str(job), "PYTHONPATH": str(copy / "src"), "TMPDIR": str(folder)},
        stdout=(folder / "log").open("wb"),
        stderr=subprocess.STDOUT,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)  # fmt: skip
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--seed", type=int, default=23)
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument(
        "--only", type=int, nargs="*", help="run only the mutants with these numbers of --list"
    )
    parser.add_argument("--data", type=Path, default=Path(".coverage"))
    parser.add_argument("--durations", type=Path, default=Path(".durations.json"))
    parser.add_argument("--json", type=Path, default=Path("mutants.json"))
    parser.add_argument("--list", action="store_true", help="show the mutants and run none")
    parser.add_argument("--compare", type=Path, nargs=2, metavar=("BEFORE", "AFTER"))
    options = parser.parse_args()

    if options.compare:
        _print_lines(_compare(*options.compare))
        return
    mutants = choose_mutants(options.count, options.seed)
    if options.list:
        _print_lines(f"{number:3} {mutant}" for number, mutant in enumerate(mutants))
        return
    mutants = [mutants[number] for number in options.only or range(len(mutants))]
    durations = json.loads(options.durations.read_text())
    _assign_tests(mutants, options.data, durations)
    with tempfile.TemporaryDirectory(dir=os.environ.get("PYTEST_DEBUG_TEMPROOT")) as folder:
        jobs = []
        for number in range(options.jobs):
            (own := Path(folder, str(number))).mkdir()
            jobs.append((_start_job(mutants[number :: options.jobs], durations, own), own))
        try:
            for process, own in jobs:
                if process.wait():
                    sys.exit((own / "log").read_text()[-5000:])
        finally:
            for process, _ in jobs:
                process.terminate()
            lines = [line for _, own in jobs for line in _read_results(own / "job.done")]
            results = sorted(lines, key=lambda each: (each["module"], each["line"], each["after"]))
            options.json.write_text(json.dumps(results, indent=1, ensure_ascii=False) + "\n")
    _print_lines(_report(results))


def _read_results(file: Path) -> list[dict[str, Any]]:
    """Return the finished mutants of a job, or none if it has finished none."""
    return [json.loads(line) for line in file.read_text().splitlines()] if file.exists() else []


def _report(results: list[dict[str, Any]]) -> Iterator[str]:
    """Yield the outcomes of each module, then the mutants that no test noticed."""
    for name in [*MODULES, ""]:
        counts = Counter(each["outcome"] for each in results if each["module"].startswith(name))
        details = ", ".join(f"{many} {outcome}" for outcome, many in sorted(counts.items()))
        yield f"{name or 'all':16} {counts.total():4} mutants: {details}"
    for each in results:
        if each["outcome"] not in KILLED:
            yield f"{_describe(each)} ({each['outcome']}, {each['tests']} tests)"


def _compare(before: Path, after: Path) -> Iterator[str]:
    """Yield the mutants that only the run before killed, then those that only the run after did."""
    then, now = (
        {_describe(each) for each in json.loads(file.read_text()) if each["outcome"] in KILLED}
        for file in (before, after)
    )
    yield f"{len(then)} killed before, {len(now)} after"
    yield from (f"lost: {name}" for name in sorted(then - now))
    yield from (f"gained: {name}" for name in sorted(now - then))


def _describe(result: dict[str, Any]) -> str:
    return "{module}.py:{line}: {before}  →  {after}".format_map(result)


def _print_lines(lines: Iterable[str]) -> None:
    sys.stdout.writelines(f"{line}\n" for line in lines)


if __name__ == "__main__":
    main()
