"""The report of an evaluation: what a result document of `jobs.evaluate` says, for people."""

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, TypeAlias

from hgmem_core.metrics import METRICS
from hgmem_core.section import ConfigError
from pipelines.missed_report import missed_sections
from pipelines.report_charts import Chart, Charts, Estimate
from pipelines.report_page import Finding, Page, Section, Table, Tile

Result: TypeAlias = Mapping[str, Any]

_MAIN = "recall@10"
_LOCOMO = {"1": "multi-hop", "2": "temporal", "3": "open-domain", "4": "single-hop", "5": "adversarial"}
_DRAWN = 6
"""Recipes in one chart; a table tells of all."""

_KNOWN = frozenset(
    "results differences comparisons own_shares worst gate warnings answers evidence config encoder models folds seeds "
    "training_seconds tuned".split()
)
"""Parts of a document with a section of their own, or with none."""


class ReportError(ConfigError):
    """There is nothing to report of; the message says what was looked at, and what it should be."""


def evaluation_page(result: Result, name: str, curves: Sequence[Mapping[str, Any]] = ()) -> Page:
    """Return the report of a result document.

    Args:
        result: The document.
        name: Of its file, for an error.
        curves: Of trainings, as `pipelines.training_curves` keeps them.

    Raises:
        ReportError: It is no such document.
    """
    rows = result.get("results")
    if result.get("schema_version") != 1 or not isinstance(rows, list) or not rows or "task" not in result:
        raise ReportError(f"{name} is no result of jobs.evaluate: write one with --out, and name that")
    charts = Charts()
    drawn = [_training(charts, one, name) for one in curves]
    if "recipe" in rows[0] and _MAIN in rows[0]:
        tiles, findings, sections = _retrieval(result, charts)
    else:
        tiles, findings, sections = [Tile("rows of results", f"{len(rows):,}")], [], [_plain("Results", rows)]
    others = [
        _plain(key.replace("_", " ").capitalize(), value)
        for key, value in result.items()
        if key not in _KNOWN and isinstance(value, list) and value and isinstance(value[0], dict)
    ]
    warned = [Finding(f"Warning: {text}", "bad") for text in result.get("warnings", ())]
    about = (
        f"index version {result.get('index_version', 'none')} · "
        f"encoder {result.get('encoder', {}).get('name', 'none')} · "
        f"hgmem {result.get('software_version')} · commit {str(result.get('commit'))[:10]}"
    )
    sections = [*sections, *others, *drawn, _provenance(result)]
    return Page(f"Evaluation: {result['task']}", about, tiles, [*_gate_findings(result), *findings, *warned], sections)


def _retrieval(result: Result, charts: Charts) -> tuple[list[Tile], list[Finding], list[Section]]:
    rows: list[Mapping[str, Any]] = result["results"]
    group = main_group(result)
    ranked = sorted((row for row in rows if row["group"] == group), key=lambda row: -row[_MAIN])
    best = ranked[0]
    tiles = [Tile(f"best {_MAIN}", f"{best[_MAIN]:.1f} %", f"{best['recipe']}, 95 % {_range(best, _MAIN)}")]
    tiles += [Tile(name, f"{best[name]:.1f} %", best["recipe"]) for name in ("ndcg@10", "all@context") if name in best]
    tiles += [Tile("questions", f"{best['n']:,}", _group_name(result, group))]
    findings = [
        Finding(
            f"{best['recipe']} finds {best[_MAIN]:.1f} % of the evidence among its first ten turns, 95 % interval "
            f"{_range(best, _MAIN)}, over {best['n']:,} questions."
        )
    ]
    kinds = [row for row in rows if row["recipe"] == best["recipe"] and row["group"] not in ("all", group)]
    if kinds:
        weak = min(kinds, key=lambda row: row[_MAIN])
        findings.append(
            Finding(
                f"Its weakest group is {_group_name(result, weak['group'])}: {weak[_MAIN]:.1f} % "
                f"({_range(weak, _MAIN)}, {weak['n']:,} questions)."
            )
        )
    sections = [_recall(result, charts, ranked)]
    for key, title in (("differences", "Ablations"), ("own_shares", "The share of the graph")):
        if result.get(key):
            sections.append(_differences(result, charts, result[key], title))
            findings += _told_differences(result[key], group, best["recipe"]) if key == "differences" else []
    if result.get("gate"):
        sections.append(_gate(result, charts))
    if result.get("worst"):
        sections += missed_sections(result["worst"], charts, best["recipe"], partial(_group_name, result))
    if result.get("answers"):
        sections.append(_answers(result))
    if result.get("seeds"):
        sections.append(_plain("Seeds", result["seeds"]))
    return tiles, findings, sections


def main_group(result: Result) -> str:
    """Return the group that a report speaks of first: that of the worst questions, else LoCoMo's 1-4, else `all`."""
    groups = {row["group"] for row in result["results"]}
    named = result["worst"]["group"] if result.get("worst") else "1-4" if "1-4" in groups else "all"
    return str(named if named in groups else result["results"][0]["group"])


def _group_name(result: Result, group: str) -> str:
    kind = _LOCOMO.get(group) if result["task"] == "locomo" else None
    return f"{group} {kind}" if kind else f"categories {group}" if group == "1-4" else group


def _range(row: Mapping[str, Any], metric: str) -> str:
    interval = row.get("ci95", {}).get(metric)
    return f"{interval[0]:.1f} to {interval[1]:.1f}" if interval else "no interval"


def _recall(result: Result, charts: Charts, ranked: Sequence[Mapping[str, Any]]) -> Section:
    rows: list[Mapping[str, Any]] = result["results"]
    shown = [row["recipe"] for row in ranked[:_DRAWN]]
    groups = list(dict.fromkeys(row["group"] for row in rows))
    by_key = {(row["recipe"], row["group"]): row for row in rows}
    drawn = []
    for metric in (_MAIN, "ndcg@10"):
        estimates = {
            _group_name(result, group): {
                name: _estimated(by_key[name, group], metric) for name in shown if (name, group) in by_key
            }
            for group in groups
        }
        drawn.append(charts.intervals(f"{metric} by group", estimates, "percent"))
    metrics = [name for name in rows[0] if name in METRICS or "@" in name]
    few = [
        name for name in ("recall@5", _MAIN, "recall@20", "ndcg@10", "mrr", "all@10", "all@context") if name in metrics
    ]
    best = Table(
        f"All recipes, {_group_name(result, main_group(result))}, best first",
        ("recipe", f"{_MAIN}, 95 % interval", *few),
        [(row["recipe"], _range(row, _MAIN), *(f"{row[name]:.1f}" for name in few)) for row in ranked],
    )
    full = Table(
        "Every group and metric",
        ("recipe", "group", "n", *metrics),
        [
            (row["recipe"], _group_name(result, row["group"]), f"{row['n']:,}", *(f"{row[one]:.1f}" for one in metrics))
            for row in rows
        ],
        texts=2,
        is_folded=True,
    )
    left = f" The charts show the best {_DRAWN} of {len(ranked)} recipes." if len(ranked) > _DRAWN else ""
    lead = (
        "The share of a question's evidence turns among the first ten, mean over questions; lines are 95 % intervals "
        f"by bootstrap over questions.{left}"
    )
    return Section("Recall by group", lead, drawn, [best, full])


def _estimated(row: Mapping[str, Any], metric: str) -> Estimate:
    interval = row.get("ci95", {}).get(metric)
    return Estimate(row[metric], *interval) if interval else Estimate(row[metric])


def _told_differences(rows: Sequence[Mapping[str, Any]], group: str, best: str) -> list[Finding]:
    own = [row for row in rows if row["group"] == group and row["metric"] == _MAIN]
    found = []
    for row in own:
        low, high = row["ci95"]
        if row["recipe"] == best:
            signs = row["by_conversation"].values()
            found.append(
                Finding(
                    f"Against {row['baseline']} that is {row['difference']:+.1f} points ({low:+.1f} to {high:+.1f}), "
                    f"better in {sum(one > 0 for one in signs)} of {len(signs)} conversations.",
                    "good" if low > 0 else "bad" if high < 0 else "plain",
                )
            )
    unsure = [row["recipe"] for row in own if row["ci95"][0] <= 0 <= row["ci95"][1]]
    if unsure:
        found.append(Finding(f"Not to be told from {own[0]['baseline']} by {_MAIN}: {', '.join(unsure)}."))
    return found


def _differences(result: Result, charts: Charts, rows: Sequence[Mapping[str, Any]], title: str) -> Section:
    group = main_group(result)
    own = [row for row in rows if row["group"] == group]
    estimates: dict[str, dict[str, Estimate]] = {}
    for row in own:
        estimates.setdefault(row["recipe"], {})[row["metric"]] = Estimate(row["difference"], *row["ci95"])
    baselines = ", ".join(dict.fromkeys(row["baseline"] for row in rows))
    drawn = [charts.intervals(f"Difference from {baselines}", estimates, "points", is_difference=True)] if own else []
    lead = (
        f"Paired differences from {baselines} on the same questions, {_group_name(result, group)}. An interval that "
        "holds 0 proves nothing either way."
    )
    return Section(title, lead, drawn, [_difference_table(result, rows)])


def _difference_table(result: Result, rows: Sequence[Mapping[str, Any]]) -> Table:
    written = []
    for row in rows:
        low, high = row["ci95"]
        signs = row["by_conversation"].values()
        better = f"{sum(one > 0 for one in signs)} of {len(signs)}"
        passed = ("yes" if row["passed"] else "no",) if "passed" in row else ()
        written.append((
            row["recipe"], row["baseline"], _group_name(result, row["group"]), row["metric"],
            f"{row['difference']:+.1f}", f"{low:+.1f} to {high:+.1f}", better, *passed,
        ))  # fmt: skip
    columns = ["recipe", "from", "group", "metric", "points", "95 % interval", "conversations better"]
    columns += ["passed"] if "passed" in rows[0] else []
    return Table("Every group, by conversation", columns, written, texts=4, is_folded=len(written) > 12)


def _gate_findings(result: Result) -> list[Finding]:
    gate = result.get("gate")
    if not gate:
        return []
    failed = sum(not row["passed"] for row in (*gate["floors"], *gate["comparisons"]))
    of = len(gate["floors"]) + len(gate["comparisons"])
    if gate["passed"]:
        return [Finding(f"The gate is passed: {of} of {of} conditions hold.", "good")]
    return [Finding(f"The gate is not passed: {failed} of {of} conditions fail.", "bad")]


def _gate(result: Result, charts: Charts) -> Section:
    gate = result["gate"]
    tables, drawn = [], list[Chart]()
    if gate["floors"]:
        rows = [
            (row["recipe"], _group_name(result, row["group"]), row["metric"], f"{row['at_least']:.1f}",
             f"{row['value']:.1f}", "yes" if row["passed"] else "no")
            for row in gate["floors"]
        ]  # fmt: skip
        columns = ("recipe", "group", "metric", "at least", "measured", "passed")
        tables.append(Table("Floors", columns, rows, texts=3))
    if gate["comparisons"]:
        estimates: dict[str, dict[str, Estimate]] = {}
        for row in gate["comparisons"]:
            estimates.setdefault(row["recipe"], {})[row["metric"]] = Estimate(row["difference"], *row["ci95"])
        drawn.append(charts.intervals("Difference from the earlier version", estimates, "points", is_difference=True))
        tables.append(_difference_table(result, gate["comparisons"]))
    return Section("Gate", "Whether the numbers are good enough to publish.", drawn, tables)


def _answers(result: Result) -> Section:
    answers = result["answers"]
    metrics = [name for name in ("judge", "f1", "em") if name in answers["results"][0]]
    counted = ("asked", "answered", "abstained", "failed")
    rows = [
        (row["recipe"], _group_name(result, row["group"]), *(f"{row[name]:,}" for name in counted),
         *(f"{row[name]:.1f}" for name in metrics))
        for row in answers["results"]
    ]  # fmt: skip
    lead = f"Answers marked by the protocol {answers['protocol']}; a failure counts as wrong."
    return Section("Answers", lead, tables=[Table("By group", ("recipe", "group", *counted, *metrics), rows, texts=2)])


def _training(charts: Charts, curve: Mapping[str, Any], name: str) -> Section:
    rows = curve.get("rows")
    if not isinstance(rows, list) or not rows or not all(isinstance(row, dict) for row in rows):
        raise ReportError(f"a curve given beside {name} has no rows: name the curves.json of a trained model")
    along = next(iter(rows[0]))
    measures = list(dict.fromkeys(key for row in rows for key in row if key != along))
    about = ", ".join(f"{key} {value}" for key, value in curve.items() if key not in ("rows", "recipe"))
    drawn = [charts.curve(measure, rows, along, measure) for measure in measures]
    return Section(f"Training of {curve.get('recipe', 'a model')}", about, drawn)


def _plain(title: str, rows: Sequence[Mapping[str, Any]]) -> Section:
    """Return a section of rows as they are, without what is nested in them."""
    names = list(dict.fromkeys(key for row in rows for key, value in row.items() if not isinstance(value, dict)))
    written = [[_written(row.get(name)) for name in names] for row in rows]
    is_text = [any(isinstance(row.get(name), str) for row in rows) for name in names]
    texts = is_text.index(False) if False in is_text else len(names)
    return Section(title, tables=[Table(title, names, written, texts=texts, is_folded=len(rows) > 40)])


def _written(value: object) -> str:
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return (
            ", ".join(map(_written, value)) if not any(isinstance(one, dict) for one in value) else f"{len(value)} rows"
        )
    return f"{value:,.4g}" if isinstance(value, float) else f"{value:,}" if isinstance(value, int) else str(value)


def _provenance(result: Result) -> Section:
    kept = ("task", "data_sha256", "corpus_sha256", "index_version", "software_version", "commit", "config_sha256",
            "prompts_sha256", "context_tokens")  # fmt: skip
    rows = [(name.replace("_", " "), _written(result[name])) for name in kept if name in result]
    rows += [(name.replace("_", " "), _written(count)) for name, count in result.get("evidence", {}).items()]
    tables = [Table("What was measured", ("what", "value"), rows, texts=2)]
    if "config" in result:
        settings = [
            (f"{section}.{name}" if name else section, json.dumps(value, ensure_ascii=False))
            for section, own in result["config"].items()
            for name, value in (own.items() if isinstance(own, dict) else [("", own)])
        ]
        tables.append(Table("The configuration", ("setting", "value"), settings, texts=2, is_folded=True))
    return Section("Where these numbers come from", tables=tables)
