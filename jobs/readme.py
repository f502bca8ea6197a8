"""Write the README's tables of results from `jobs/results`; with `--check`, fail if they are out of date."""

import argparse
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from jobs.terminal import run_job, write

ROOT = Path(__file__).parents[1]
RESULTS = ROOT / "jobs" / "results"
SHOWN_METRICS = ("recall@10", "ndcg@10", "hit@10", "mrr", "all@10")


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.readme", description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    path = ROOT / "README.md"
    old = path.read_text(encoding="utf-8")
    new = with_results(old)
    if arguments.check:
        write("README.md is up to date" if new == old else "README.md is out of date: run python -m jobs.readme")
        return int(new != old)
    path.write_text(new, encoding="utf-8")
    return 0


def with_results(text: str) -> str:
    """Return a README's text with every part between `<!-- results: NAME -->` and `<!-- end -->` written anew."""
    tables = {"locomo": locomo_table, "speed": speed_table}
    pattern = re.compile(r"(<!-- results: (\w+) -->\n).*?(<!-- end -->)", re.DOTALL)
    return pattern.sub(lambda match: f"{match[1]}\n{tables[match[2]]()}\n\n{match[3]}", text)


def locomo_table() -> str:
    """Return the LoCoMo table: questions of categories 1-4, and recall on the multi-hop ones."""
    result = _read("locomo6.json")
    rows = {(row["recipe"], row["group"]): row for row in result["results"]}
    lines = ["| recipe | " + " | ".join(SHOWN_METRICS) + " | multi-hop recall@10 |"]
    lines.append("|---" * (len(SHOWN_METRICS) + 2) + "|")
    for recipe, group in rows:
        if group == "1-4":
            values = [rows[recipe, "1-4"][name] for name in SHOWN_METRICS] + [rows[recipe, "1"]["recall@10"]]
            lines.append(f"| `{recipe}` | " + " | ".join(f"{value:.1f}" for value in values) + " |")
    asked = next(row["n"] for (_, group), row in rows.items() if group == "1-4")
    lines += ["", f"Percent of {asked} questions of categories 1-4; commit {str(result['commit'])[:8]}."]
    return "\n".join(lines)


def speed_table() -> str:
    """Return what a turn costs to build and a query to answer, the encoder left out."""
    build, search = _read("benchmark-build.json"), _read("benchmark-search.json")
    lines = ["| what | milliseconds |", "|---|---|"]
    total = build["cpu_ms_a_turn"]["total"]
    lines.append(f"| CPU to import, merge, index and publish a turn | {total:.2f} |")
    for recipe, taken in search["p50_ms"].items():
        lines.append(f"| search `{recipe}`, median | {taken:.2f} |")
    machine = build["machine"]
    sizes = f"a log of {build['turns']:,} turns, a conversation of {search['turns']}"
    where = f"{machine['cpu']}, {machine['cores']} cores; commit {str(build['commit'])[:8]}"
    lines += ["", f"The encoder left out; {sizes}; {where}."]
    return "\n".join(lines)


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    run_job(main)
