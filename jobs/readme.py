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


PAGES = (
    "README.md", "docs/abstention.md", "docs/comparison.md", "docs/forget.md", "docs/hage.md", "docs/hypermem.md",
    "docs/learned.md", "docs/serving.md", "docs/skills.md", "docs/speed.md",
)  # fmt: skip


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
        "scale": scale_table,
        "incremental": incremental_table,
        "search": search_table,
        "large": large_table,
        "serve": serve_table,
        "forget": forget_table,
        "hypermem": lambda: compared_table("hypermem.json"),
        "hage": lambda: compared_table("hage-cv.json"),
        "abstention": abstention_table,
        "learned": lambda: compared_table("learned-cv.json"),
        "comparison": lambda: compared_table("comparison-locomo.json"),
        "paragraphs": paragraphs_table,
        "graph": own_share_table,
        "halves": halves_table,
        "segmentation": segmentation_table,
        "skills": skills_table,
        "evolution": evolution_table,
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


_MOST_STAGES = 3


def speed_table() -> str:
    """Return what a turn costs to build, its dearest stages, and a query to answer; the encoder left out."""
    build, search = _read("benchmark-build.json"), _read("benchmark-search.json")
    lines = ["| what | milliseconds |", "|---|---|"]
    lines.append(f"| CPU to import and index a turn, all stages | {build['cpu_ms_a_turn']['total']:.2f} |")
    stages = sorted(build["ms_a_turn_by_stage"].items(), key=lambda item: -item[1])
    lines += [f"| of it: {stage} | {taken:.3f} |" for stage, taken in stages[:_MOST_STAGES]]
    for recipe in ("bm25", "dense", "hybrid", "hybrid-window", "untrained", "hypergraph", "hypermem"):
        lines.append(f"| search `{recipe}`, median | {search['p50_ms'][recipe]:.2f} |")
    sizes = f"a log of {build['turns']:,} turns, a conversation of {search['turns']}"
    lines += ["", f"The encoder left out; {sizes}; {_where([build])}."]
    return "\n".join(lines)


def scale_table() -> str:
    """Return what full rebuilds of several sizes take, and what a further turn costs between two sizes."""
    results = _read_all("benchmark-scale-*.json")
    lines = ["| engine | turns | namespaces | seconds | CPU ms a turn | peak memory, MiB | store, MiB |"]
    lines.append("|---" * 7 + "|")
    lines += [
        f"| {result['engine']} | {row['turns']:,} | {row['namespaces']:,} | {row['wall_seconds']['median']:,.1f} "
        f"| {row['ms_a_turn']['cpu']['median']:.2f} | {row['peak_memory_mib']['median']:,.0f} "
        f"| {row['store_mib']:,.0f} |"
        for result in results
        for row in result["sizes"]
    ]
    lines += ["", "| engine | from turns | to | a further turn, ms | its CPU, ms |", "|---" * 5 + "|"]
    lines += [
        f"| {result['engine']} | {slope['from_turns']:,} | {slope['to_turns']:,} "
        f"| {slope['wall_ms_a_turn']:.2f} | {slope['cpu_ms_a_turn']:.2f} |"
        for result in results
        for slope in result["slopes"]
    ]
    return "\n".join([*lines, "", f"Medians of {_repeats(results)}; {_where(results)}."])


def incremental_table() -> str:
    """Return what a rebuild takes after the log grew by a hundredth."""
    results = _read_all("benchmark-incremental-*.json")
    lines = ["| engine | turns | new turns | in namespaces | seconds | CPU, of the full rebuild's |", "|---" * 6 + "|"]
    for result in results:
        full = f"| {result['engine']} | {result['turns']:,} | "
        lines.append(
            f"{full}all | {result['namespaces']:,} | {result['full']['wall_seconds']['median']:,.1f} | 100 % |"
        )
        lines += [
            f"{full}{row['new_turns']:,} | {row['namespaces_with_new_turns']:,} "
            f"| {row['wall_seconds']['median']:,.1f} | {100 * row['cpu_share']['median']:.1f} % |"
            for row in result["grown"].values()
        ]
    return "\n".join([*lines, "", f"Medians of {_repeats(results)}; {_where(results)}."])


def search_table() -> str:
    """Return the milliseconds of a search by recipe in namespaces of several sizes."""
    results = sorted(_read_all("benchmark-search*.json"), key=lambda result: int(result["turns"]))
    sizes = [f"{result['turns']:,} turns" for result in results]
    lines = ["| recipe | " + " | ".join(f"{size}, p50 | p95" for size in sizes) + " |"]
    lines.append("|---" * (1 + 2 * len(results)) + "|")
    for recipe in results[0]["p50_ms"]:
        values = [result[name][recipe] for result in results for name in ("p50_ms", "p95_ms")]
        lines.append(f"| `{recipe}` | " + " | ".join(f"{value:.2f}" for value in values) + " |")
    return "\n".join([*lines, "", f"Milliseconds, query vector given; {_where(results)}."])


def compared_table(name: str) -> str:
    """Return recipes with their paired differences from the first of them."""
    result = _read(name)
    rows = {(row["recipe"], row["group"]): row for row in result["results"]}
    differences = {(row["recipe"], row["group"], row["metric"]): row for row in result["differences"]}
    more = ["all@context"] if "context_tokens" in result else []
    heads = ["recipe", "recall@10", "difference", "ndcg@10", "difference", "multi-hop recall@10", *more]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for recipe, group in rows:
        if group != "1-4":
            continue
        own = rows[recipe, group]
        cells = [f"`{recipe}`"]
        for metric in ("recall@10", "ndcg@10"):
            difference = differences.get((recipe, group, metric))
            cells += [f"{own[metric]:.1f}", _signed(difference) if difference else ""]
        cells += [f"{rows[recipe, '1']['recall@10']:.1f}", *(f"{own[metric]:.1f}" for metric in more)]
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


_PARAGRAPH_METRICS = ("recall@2", "recall@5", "recall@10")


def paragraphs_table() -> str:
    """Return what recipes find of the paragraphs of HotpotQA and MuSiQue, with differences from the default at 10."""
    results = {task: _read(f"comparison-{task}.json") for task in ("hotpotqa", "musique")}
    heads = [f"{task} {metric}" for task in results for metric in (*_PARAGRAPH_METRICS, "difference at 10")]
    lines = [f"| recipe | {' | '.join(heads)} |", "|---" * (len(heads) + 1) + "|"]
    rows = {
        (task, row["recipe"]): row for task, one in results.items() for row in one["results"] if row["group"] == "all"
    }
    differences = {
        (task, row["recipe"]): row
        for task, one in results.items()
        for row in one["differences"]
        if row["group"] == "all" and row["metric"] == "recall@10"
    }
    for recipe in dict.fromkeys(recipe for _, recipe in rows):
        cells = [f"`{recipe}`"]
        for task in results:
            cells += [f"{rows[task, recipe][metric]:.1f}" for metric in _PARAGRAPH_METRICS]
            cells.append(_signed(differences[task, recipe]) if (task, recipe) in differences else "")
        lines.append(f"| {' | '.join(cells)} |")
    asked = ", ".join(f"{rows[task, 'bm25']['n']} questions of {task}" for task in results)
    return "\n".join([*lines, "", f"Percent; {asked}; commit {str(results['musique']['commit'])[:8]}."])


def own_share_table() -> str:
    """Return what the graph adds to the trees that a recipe begins with."""
    rows = _read("learned-cv.json")["own_shares"]
    found = {(row["recipe"], row["baseline"], row["group"], row["metric"]): row for row in rows}
    heads = ["recipe", "beside", "recall@10", "ndcg@10", "multi-hop recall@10", "multi-hop ndcg@10"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for recipe, baseline in dict.fromkeys((row["recipe"], row["baseline"]) for row in rows):
        cells = [
            _signed(found[recipe, baseline, group, metric])
            for group in ("1-4", "1")
            for metric in ("recall@10", "ndcg@10")
        ]
        lines.append(f"| `{recipe}` | `{baseline}` | {' | '.join(cells)} |")
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


def abstention_table() -> str:
    """Return how well abstention tells questions that have an answer from others, beside the question's text alone."""
    result = _read("abstention.json")
    heads = ["", "AUROC", "by conversation", "Brier", "calibration error", "abstains: answerable", "unanswerable"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for row in result["results"]:
        own = row["by_conversation"].values()
        cells = [row["system"], _within(row["auroc"], row["ci95"]), f"{min(own):.3f} to {max(own):.3f}"]
        cells += [f"{row[name]:.3f}" for name in ("brier", "calibration_error")]
        cells += [f"{100 * row[f'abstained_of_{name}']:.1f} %" for name in ("answerable", "unanswerable")]
        lines.append("| " + " | ".join(cells) + " |")
    difference = result["auroc_difference"]
    lines.append(f"| difference | {_within(difference['difference'], difference['ci95'])} |" + " |" * (len(heads) - 2))
    return "\n".join(lines)


def large_table() -> str:
    """Return what a large namespace takes to index and to search, and how much IVF finds of what is nearest."""
    result = _read("benchmark-large.json")
    lines = ["| build | seconds | CPU seconds |", "|---|---|---|"]
    parts = {"total": "all", "tables": "rows and postings", "ivf": "IVF", "files": "writing the files"}
    wall, cpu = result["build_seconds"], result["build_cpu_seconds"]
    lines += [f"| {told} | {wall[name]:,.0f} | {cpu[name]:,.0f} |" for name, told in parts.items()]
    lines += ["", "| IVF index | rows | lists | read | recall@10, sample | questions |", "|---" * 6 + "|"]
    for one in result["indexes"]:
        kind = "propagated" if one["vectors"] == "propagated_vectors" else "base"
        asked = "" if (one["level"], kind) == ("fact", "base") else f"{result['recall_at_10'][one['level']]:.3f}"
        lines.append(
            f"| {one['level']}, {kind} | {one['rows']:,} | {one['lists']:,} | {one['probed']} | {one['recall']:.3f} "
            f"| {asked} |"
        )
    lines += ["", "| search, milliseconds | p50 | p95 | CPU, p50 |", "|---|---|---|---|"]
    lines += [
        f"| `{name}` | {middle:.2f} | {result['p95_ms'][name]:.2f} | {result['cpu_p50_ms'][name]:.2f} |"
        for name, middle in result["p50_ms"].items()
    ]
    sizes = f"{result['facts']:,} facts, {result['turns']:,} turns, {result['peak_rss_mib']:,} MiB at most"
    return "\n".join([*lines, "", f"{sizes}; {_where([result])}."])


def serve_table() -> str:
    """Return what the endpoint costs beside the direct call, and what became of requests while versions changed."""
    result = _read("benchmark-serve.json")
    one, direct, many = (result[name] for name in ("one_at_a_time", "direct", "many_at_a_time"))
    cpu, busy, soak, swap = (result[name] for name in ("cpu_ms_a_request", "many_cpu_ms_a_request", "soak", "swap"))
    cancelled, clients = result["cancelled"], many["clients"]
    lines = [f"| milliseconds | direct call | endpoint, one client | endpoint, {clients} clients |", "|---" * 4 + "|"]
    for name in ("p50_ms", "p95_ms"):
        lines.append(f"| {name[:3]} | {direct[name]:.1f} | {one[name]:.1f} | {many[name]:.1f} |")
    for part in ("proxy", "replicas", "controller"):
        lines.append(f"| CPU a request: {part} | | {cpu[part]:.1f} | {busy[part]:.1f} |")
    lines.append(f"| CPU a request: proxy, replicas | {cpu['direct']:.1f} | {cpu['direct'] + cpu['added']:.1f} | |")
    facts = {
        "answers a second, all clients": f"{many['a_second']:.1f}: {many['ratio']:.2f} of two direct processes",
        "errors of either": one["errors"] + many["errors"],
        "starting Ray and Serve, up to the first answer": f"{result['ready_seconds']:.1f} s",
        f"a question after {cancelled['requests']} that were given up": f"{cancelled['next_seconds']:.2f} s",
        f"a moved pointer to the new version's answer, {swap['mib']:,.0f} MiB": f"{swap['seconds']:.1f} s",
        "memory": ", ".join(f"{part} {mib:,} MiB" for part, mib in result["memory_mib"].items()),
        f"{soak['requests']:,} requests while versions change: wrong versions": soak["wrong_versions"],
        "an answer of an earlier version, at most after": f"{soak['late_seconds']:.1f} s",
        "failed on their way to the killed replica": soak["errors_in_flight"],
        "other failures": soak["other_errors"],
        "memory before and after": f"{soak['memory_mib_before']:,} and {soak['memory_mib_after']:,} MiB",
    }
    lines += ["", "| | |", "|---|---|", *(f"| {told} | {value} |" for told, value in facts.items())]
    sizes = f"{result['turns']:,} turns and {result['facts']:,} facts, {result['replicas']} replicas"
    return "\n".join([*lines, "", f"{sizes}, encoder {result['encoder']}; {_where([result])}."])


def forget_table() -> str:
    """Return what forgetting a namespace at once takes beside its bucket's files, and what audits found and took."""
    result = _read("benchmark-forget.json")
    audits, count = result["audits"], result["canaries"]
    facts = {
        "all files of its bucket, made anew": f"{result['rebuild_of_bucket_seconds']['median']:.2f} s",
        "forgotten and erased at once": f"{result['forget_seconds']['median']:.2f} s",
        "beside each other": f"{result['ratio']['median']:.2f}",
    }
    for when, audit in audits.items():
        told = f"{audit['canaries_found']} of {count} texts, in {audit['seconds']:,.0f} s"
        facts[f"audit of {audit['bytes'] / (1 << 30):.1f} GiB in {audit['files']:,} files {when.replace('_', ' ')}"] = (
            told
        )
    lines = ["| | |", "|---|---|", *(f"| {told} | {value} |" for told, value in facts.items())]
    sizes = f"{result['turns']:,} turns of {result['namespaces']:,} namespaces in {result['buckets']:,} buckets"
    return "\n".join([*lines, "", f"{sizes}, two versions, {_repeats([result])}; {_where([result])}."])


def skills_table() -> str:
    """Return what recipes and controls cover of what agents did, each dataset a column."""
    result = _read("skills.json")
    datasets = [name for name in result["datasets"]]
    rows = {(row["dataset"], row["system"]): row for row in result["results"]}
    less = {
        (row["dataset"], row["system"]): row for row in result["skill_differences"] if row["metric"] == "coverage@500t"
    }
    lines = ["| coverage@500t, percent | " + " | ".join(datasets) + " |", "|---" * (len(datasets) + 1) + "|"]
    for system in dict.fromkeys(system for _, system in rows):
        cells = [f"{rows[name, system]['coverage@500t']:.1f}" for name in datasets]
        beside = [f" ({_signed(less[name, system])})" if (name, system) in less else "" for name in datasets]
        lines.append(f"| {system} | " + " | ".join(map("".join, zip(cells, beside, strict=True))) + " |")
    lines += ["", "| family_precision@5, percent | " + " | ".join(datasets) + " |", "|---" * (len(datasets) + 1) + "|"]
    for system in dict.fromkeys(system for _, system in rows):
        found = [rows[name, system]["family_precision@5"] for name in datasets]
        lines.append(f"| {system} | " + " | ".join("" if one is None else f"{one:.1f}" for one in found) + " |")
    told = result["datasets"].items()
    lines += ["", "| | " + " | ".join(datasets) + " |", "|---" * (len(datasets) + 1) + "|"]
    for name in ("runs", "learned_tasks", "held_out_tasks", "solved_tasks", "skills", "mistakes"):
        lines.append(f"| {name.replace('_', ' ')} | " + " | ".join(str(counts[name]) for _, counts in told) + " |")
    return "\n".join([*lines, "", f"Commit {str(result['commit'])[:8]}."])


def evolution_table() -> str:
    """Return what cycles of evolution take and what that costs beside chance."""
    heads = ["", "cycles", "skills", "pruned", "merged away", "taken", "coverage", "before", "after"]
    heads += ["as many at random", "after, beside that"]
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    results = _read_all("skills-evolution-*.json")
    for row in (row for result in results for row in result["evolution"]):
        counts = [row["dataset"], *(str(row[name]) for name in ("cycles", "skills", "pruned", "merged_away"))]
        for lessons, own in row["coverage@500t"].items():
            cells = [*counts, f"{row['removed_share']:.0%}", lessons.replace("_", " ")]
            cells += [f"{own[name]:.1f}" for name in ("before", "after", "at_random")]
            lines.append(f"| {' | '.join([*cells, _signed(own)])} |")
    commits = dict.fromkeys(str(result["commit"])[:8] for result in results)
    return "\n".join([*lines, "", f"Commit {', '.join(commits)}."])


def _within(value: float, interval: Sequence[float]) -> str:
    return f"{value:.3f} [{interval[0]:.3f}, {interval[1]:.3f}]"


def _where(results: Sequence[dict[str, Any]]) -> str:
    """Say on what machines, and from which source, results come."""
    machines = dict.fromkeys(f"{result['machine']['cpu']}, {result['machine']['cores']} cores" for result in results)
    commits = dict.fromkeys(str(result["commit"])[:8] for result in results)
    return f"{'; '.join(machines)}; commit {', '.join(commits)}"


def _repeats(results: Sequence[dict[str, Any]]) -> str:
    return f"{' or '.join(dict.fromkeys(str(result['repeats']) for result in results))} repeats"


def _read_all(pattern: str) -> list[dict[str, Any]]:
    return [_read(path.name) for path in sorted(RESULTS.glob(pattern))]


def _read(name: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads((RESULTS / name).read_text(encoding="utf-8"))
    return content


if __name__ == "__main__":
    run_job(main)
