"""Write the tables of results in the README and the docs from `jobs/results`; `--check` fails if they are stale."""

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


PAGES = ("README.md", "docs/hypermem.md")


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m jobs.readme", description=__doc__)
    parser.add_argument("--check", action="store_true")
    arguments = parser.parse_args(argv)
    stale = []
    for name in PAGES:
        old = (ROOT / name).read_text(encoding="utf-8")
        new = with_results(old)
        if new != old:
            stale.append(name)
            if not arguments.check:
                (ROOT / name).write_text(new, encoding="utf-8")
    if arguments.check:
        write(f"out of date: {', '.join(stale)}; run python -m jobs.readme" if stale else "every page is up to date")
    return int(arguments.check and bool(stale))


def with_results(text: str) -> str:
    """Return a page's text with every part between `<!-- results: NAME -->` and `<!-- end -->` written anew."""
    tables = {
        "locomo": locomo_table,
        "speed": speed_table,
        "hypermem": hypermem_table,
        "halves": halves_table,
        "segmentation": segmentation_table,
    }
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
    lines.append(f"| CPU to import and index a turn, all stages | {build['cpu_ms_a_turn']['total']:.2f} |")
    lines += [f"| of it: {stage} | {taken:.3f} |" for stage, taken in build["ms_a_turn_by_stage"].items()]
    for recipe in ("bm25", "dense", "hybrid", "hybrid-window", "untrained", "hypergraph", "hypermem"):
        lines.append(f"| search `{recipe}`, median | {search['p50_ms'][recipe]:.2f} |")
    machine = build["machine"]
    sizes = f"a log of {build['turns']:,} turns, a conversation of {search['turns']}"
    where = f"{machine['cpu']}, {machine['cores']} cores; commit {str(build['commit'])[:8]}"
    lines += ["", f"The encoder left out; {sizes}; {where}."]
    return "\n".join(lines)


def hypermem_table() -> str:
    """Return HyperMem's switches and their paired differences from it."""
    result = _read("hypermem.json")
    rows = {(row["recipe"], row["group"]): row for row in result["results"]}
    differences = {(row["recipe"], row["group"], row["metric"]): row for row in result["differences"]}
    lines = ["| recipe | recall@10 | difference | ndcg@10 | difference | multi-hop recall@10 | all@context |"]
    lines.append("|---" * 7 + "|")
    for recipe, group in rows:
        if group != "1-4":
            continue
        own = rows[recipe, group]
        cells = [f"`{recipe}`"]
        for metric in ("recall@10", "ndcg@10"):
            difference = differences.get((recipe, group, metric))
            cells += [f"{own[metric]:.1f}", _signed(difference) if difference else ""]
        cells += [f"{rows[recipe, '1']['recall@10']:.1f}", f"{own['all@context']:.1f}"]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def _signed(row: dict[str, Any]) -> str:
    low, high = row["ci95"]
    return f"{row['difference']:+.1f} [{low:+.1f}, {high:+.1f}]"


def halves_table() -> str:
    """Return what the constants chosen on one half of the conversations give on the other."""
    result = _read("hypergraph-halves.json")
    names = list(result["mean_of_held_out_halves"])
    lines = ["| chosen on | constants | " + " | ".join(names) + " |", "|---" * (len(names) + 2) + "|"]
    for half in result["halves"]:
        conversations = ", ".join(name.removeprefix("locomo/conv-") for name in half["chosen_on"])
        constants = ", ".join(f"{name} {value}" for name, value in half["constants"].items())
        lines.append(f"| {conversations} | {constants} | " + " | ".join(f"{half[name]:.1f}" for name in names) + " |")
    means = " | ".join(f"**{value:.1f}**" for value in result["mean_of_held_out_halves"].values())
    lines.append(f"| mean of the held-out halves | {result['settings']} settings tried a half | {means} |")
    return "\n".join(lines)


def segmentation_table() -> str:
    """Return the segmentation beside its baselines."""
    result = _read("segmentation.json")
    names = [name for name in result["results"][0] if name != "system"]
    lines = ["| system | " + " | ".join(names) + " |", "|---" * (len(names) + 1) + "|"]
    for row in result["results"]:
        lines.append(f"| {row['system']} | " + " | ".join(f"{row[name]:.1f}" for name in names) + " |")
    return "\n".join(lines)


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    run_job(main)
