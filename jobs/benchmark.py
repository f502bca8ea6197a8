"""Measure speed, and draw what was measured.

python -m jobs.benchmark build --data locomo6.json
python -m jobs.benchmark search --data locomo6.json
python -m jobs.benchmark search --turns 50000 --encoder static
python -m jobs.benchmark scale --engine local --turns 10000,100000,1000000 --out scale.json
python -m jobs.benchmark incremental --engine ray --turns 100000 --out incremental.json
python -m jobs.benchmark http
python -m jobs.benchmark walks
python -m jobs.benchmark tokens --data locomo6.json
python -m jobs.benchmark skills
python -m jobs.benchmark forget --turns 1000000 --namespaces 20000 --out forget.json
python -m jobs.benchmark large --facts 1000000
python -m jobs.benchmark serve --facts 250000 --soak 10000
python -m jobs.benchmark plot scale.json incremental.json --out plots
"""

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hgmem_core.config import Config, IndexConfig, InputConfig, StoreConfig, parse_config
from hgmem_core.section import ConfigError
from jobs.evaluate import source_commit
from jobs.terminal import Bars, console, notices, override, plain_table, run_job, write_json
from pipelines.benchmark import benchmark_build, benchmark_search, machine, synthetic_input
from pipelines.evaluation import open_task
from pipelines.forget_benchmark import benchmark_forget
from pipelines.large_benchmark import benchmark_large
from pipelines.processes import ONE_THREAD, in_fresh_process
from pipelines.scaling import benchmark_incremental, benchmark_scale
from pipelines.skill_benchmark import benchmark_skills
from pipelines.synthetic import SyntheticLog, questions, write_log
from pipelines.token_benchmark import benchmark_tokens, log_texts

QUERIES = 200

NEIGHBOURS = 37
"""Of the node with most of them in the graph of a LoCoMo conversation, as HAGE makes it."""
PLAIN_WALKS = 50


def main(argv: Sequence[str]) -> int:
    """Run the job and return its exit code."""
    arguments = _parser().parse_args(argv)
    if arguments.case == "plot":
        return _plot(arguments.results, arguments.out)
    if arguments.work:
        arguments.work.mkdir(parents=True, exist_ok=True)
    with Bars() as bars, tempfile.TemporaryDirectory(dir=arguments.work) as folder:
        result = _CASES[arguments.case](arguments, Path(folder), bars)
    result = {**result, "machine": machine(), "commit": source_commit()}
    if arguments.out:
        arguments.out.parent.mkdir(parents=True, exist_ok=True)
        arguments.out.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    if arguments.json:
        write_json(result)
    else:
        _show(result)
    mismatches = _mismatches(result)
    for mismatch in mismatches:
        notices.print(f"[bold red]error:[/] counts do not add up: {mismatch}", highlight=False, soft_wrap=True)
    return int(bool(mismatches))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m jobs.benchmark", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    cases = parser.add_subparsers(dest="case", required=True)
    build = cases.add_parser("build", help="milliseconds of CPU a turn in one thread, without the encoder")
    search = cases.add_parser("search", help="milliseconds a search in one namespace in one thread, query vector given")
    scale = cases.add_parser("scale", help="time, memory and disk of rebuilds of several sizes")
    incremental = cases.add_parser("incremental", help="what a rebuild costs after 1 %% new turns")
    http = cases.add_parser("http", help="requests that the `http` client keeps on their way to a slow server")
    http.add_argument("--requests", type=_count, default=2_000, metavar="N")
    http.add_argument("--concurrency", type=_count, default=64, metavar="N", help="requests in flight, at most")
    http.add_argument("--latency-ms", type=_count, default=200, metavar="N", help="until the server answers")
    walks = cases.add_parser("walks", help="walks of HAGE's policy a second with gradient, in one thread")
    walks.add_argument("--batch", type=_count, default=256, metavar="N", help="walks at a time")
    tokens = cases.add_parser("tokens", help="texts to search terms, beside bm25s's own tokeniser, in one thread")
    skills = cases.add_parser("skills", help="the algebra of a large skill hypergraph, in one thread")
    skills.add_argument("--trajectories", type=_count, default=100_000, metavar="N", help="runs")
    skills.add_argument("--skills", type=_count, default=10_000, metavar="N", help="distinct skills")
    skills.add_argument("--queries", type=_count, default=10_000, metavar="N", help="tasks that skills are found for")
    forget = cases.add_parser("forget", help="erasing a namespace at once, beside the rebuild of its bucket's files")
    forget.add_argument("--turns", type=_count, default=20_000, metavar="N", help="of the synthetic log")
    forget.add_argument("--namespaces", type=_count, default=400, metavar="N", help="of the synthetic log")
    forget.add_argument("--canaries", type=_count, default=100, metavar="N", help="turns that are looked for")
    forget.add_argument("--dimension", type=_count, default=384, metavar="N", help="floats of a vector")
    forget.add_argument("--buckets", type=_count, metavar="N", help="of the store; by the size of its log without")
    large = cases.add_parser(
        "large", help="one large namespace, vectors given: its index and its searches, in one thread"
    )
    large.add_argument("--facts", type=_count, default=100_000, metavar="N", help="and a fifth as many turns")
    large.add_argument(
        "--ivf-from",
        type=_count,
        default=IndexConfig().ivf_from,
        metavar="N",
        help="rows from which there is an IVF index",
    )
    served = cases.add_parser("serve", help="the endpoint on a Ray of its own, beside the retriever called directly")
    served.add_argument("--facts", type=_count, default=5_000, metavar="N", help="and a fifth as many turns")
    served.add_argument("--replicas", type=_count, default=2, metavar="N", help="of the endpoint")
    served.add_argument("--requests", type=_count, default=400, metavar="N", help="of each measure")
    served.add_argument("--soak", type=_count, default=0, metavar="N", help="requests while versions change")
    served.add_argument("--store", type=Path, metavar="FOLDER", help="is made, kept, and used the next time")
    served.add_argument(
        "--set", action="append", default=[], metavar="A.B=VALUE", dest="overrides", help="change one setting"
    )
    for case, turns in ((build, 10_000), (search, 600), (tokens, 10_000)):
        case.add_argument("--data", type=Path, metavar="FILE", help="LoCoMo's own file; without one, a synthetic log")
        case.add_argument("--turns", type=_count, default=turns, metavar="N", help="of the synthetic log")
    build.add_argument("--namespaces", type=_count, default=20, metavar="N", help="of the synthetic log")
    search.add_argument(
        "--encoder",
        choices=["free", "static", "minilm"],
        default="free",
        help="what makes the vectors; `free` stands for one of 384 dimensions at no cost",
    )
    scale.add_argument(
        "--turns", type=_counts, default=[1_000, 10_000], metavar="N,N", help="of each synthetic log, ascending"
    )
    incremental.add_argument("--turns", type=_count, default=10_000, metavar="N", help="of the log before it grows")
    for case in (scale, incremental):
        case.add_argument("--turns-a-namespace", type=_count, default=50, metavar="N", help="on average")
        case.add_argument("--engine", choices=["local", "ray"], default="local")
        case.add_argument("--encoder", choices=["static", "minilm"], default="static")
        case.add_argument("--buckets", type=_count, metavar="N", help="of each store; by the size of its log without")
        case.add_argument(
            "--set", action="append", default=[], metavar="A.B=VALUE", dest="overrides", help="change one setting"
        )
    search.add_argument("--models", metavar="FOLDER", help="of trained models, whose recipes are timed too")
    for case, repeats in (
        (build, 5),
        (search, 5),
        (scale, 3),
        (incremental, 3),
        (http, 3),
        (walks, 5),
        (tokens, 15),
        (skills, 3),
        (forget, 3),
    ):
        case.add_argument("--repeats", type=_count, default=repeats, metavar="N")
    for case in (build, search, scale, incremental, http, walks, tokens, skills, forget, large, served):
        case.add_argument("--work", type=Path, metavar="FOLDER", help="where logs and stores are made and removed")
        case.add_argument("--out", type=Path, metavar="FILE", help="where to write the result as JSON")
        case.add_argument("--json", action="store_true", help="print the result as JSON on standard output")
    plot = cases.add_parser("plot", help="draw results of the other cases as PNG files")
    plot.add_argument(
        "results", type=Path, nargs="+", metavar="FILE", help="result documents of search, scale and incremental"
    )
    plot.add_argument("--out", type=Path, required=True, metavar="FOLDER", help="where to write them")
    return parser


def _count(text: str) -> int:
    if not re.fullmatch(r"0*[1-9][0-9]{0,8}", text):
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number from 1 on")
    return int(text)


def _counts(text: str) -> list[int]:
    return [_count(part) for part in text.split(",")]


def _build(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    return benchmark_build(_log(arguments, folder, arguments.namespaces), arguments.repeats, bars)


def _search(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    bars.start("search", None)
    if arguments.data:
        queries = open_task("locomo", arguments.data).questions.queries.column("text").to_pylist()[:QUERIES]
    else:
        queries = questions(SyntheticLog(arguments.turns, 1), 0, QUERIES)
    free = arguments.encoder == "free"
    overrides = [] if free else [override("encoder.name", arguments.encoder)]
    if arguments.models:
        overrides.append(override("retrieve.models", arguments.models))
    config = parse_config("", overrides)
    one = _log(arguments, folder, 1)
    config = config.model_copy(update={"store": StoreConfig(root=f"{folder}/store"), "inputs": [one]})
    return in_fresh_process(ONE_THREAD, benchmark_search, config, queries, arguments.repeats, free)


def _scale(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    rest = (arguments.turns_a_namespace, arguments.repeats, folder, bars)
    return benchmark_scale(_config(arguments), arguments.turns, *rest)


def _incremental(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    rest = (arguments.turns_a_namespace, arguments.repeats, folder, bars)
    return benchmark_incremental(_config(arguments), arguments.turns, *rest)


def _http(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    # Imported here because no other case needs an HTTP library.
    from pipelines.http_benchmark import benchmark_http

    latency_seconds = arguments.latency_ms / 1e3
    return benchmark_http(arguments.requests, arguments.concurrency, latency_seconds, arguments.repeats, bars)


def _walks(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    # Imported here because no other case needs torch.
    from pipelines.walk_benchmark import walk_benchmark

    bars.start("walks", None)
    return in_fresh_process(ONE_THREAD, walk_benchmark, NEIGHBOURS, arguments.batch, PLAIN_WALKS, arguments.repeats)


def _tokens(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    bars.start("tokens", None)
    texts = log_texts(_log(arguments, folder, 1), folder)
    return in_fresh_process(ONE_THREAD, benchmark_tokens, texts, arguments.repeats)


def _skills(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    bars.start("skills", None)
    sizes = (arguments.trajectories, arguments.skills, arguments.queries)
    return in_fresh_process(ONE_THREAD, benchmark_skills, *sizes, arguments.repeats)


def _forget(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    if arguments.namespaces > arguments.turns:
        raise ConfigError(f"--namespaces: {arguments.namespaces} are more than the {arguments.turns} turns")
    log = SyntheticLog(arguments.turns, arguments.namespaces)
    config = parse_config("", [f"store.buckets={arguments.buckets or 0}"])
    return benchmark_forget(config, log, arguments.canaries, arguments.dimension, arguments.repeats, folder, bars)


def _large(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    bars.start("large", None)
    config = IndexConfig(ivf_from=arguments.ivf_from)
    return in_fresh_process(ONE_THREAD, benchmark_large, arguments.facts, folder, config)


def _serve(arguments: argparse.Namespace, folder: Path, bars: Bars) -> dict[str, Any]:
    # Imported here because no other case needs FastAPI.
    from pipelines.serve_benchmark import Sizes, benchmark_serve

    if arguments.facts < QUERIES:
        raise ConfigError(f"--facts: {arguments.facts} are fewer than the {QUERIES} questions")
    store = StoreConfig(root=str(arguments.store or folder / "store"), buckets=1)
    config = parse_config("", arguments.overrides).model_copy(update={"store": store})
    sizes = Sizes(arguments.facts, QUERIES, arguments.requests, arguments.soak, arguments.replicas)
    return benchmark_serve(config, sizes, bars)


_CASES = {
    "build": _build,
    "search": _search,
    "scale": _scale,
    "incremental": _incremental,
    "http": _http,
    "walks": _walks,
    "tokens": _tokens,
    "skills": _skills,
    "forget": _forget,
    "large": _large,
    "serve": _serve,
}
_DRAWN = ("search", "scale", "incremental")


def _config(arguments: argparse.Namespace) -> Config:
    # A cluster that is there already would do the work where nobody counts it.
    named = {"run.engine": arguments.engine, "run.ray.address": "local", "encoder.name": arguments.encoder}
    chosen = [override(path, value) for path, value in named.items()]
    return parse_config("", [*chosen, f"store.buckets={arguments.buckets or 0}", *arguments.overrides])


def _log(arguments: argparse.Namespace, folder: Path, namespaces: int) -> InputConfig:
    if arguments.data:
        return InputConfig(format="locomo", paths=[str(arguments.data)])
    if namespaces > arguments.turns:
        raise ConfigError(f"--namespaces: {namespaces} are more than the {arguments.turns} turns")
    write_log(folder / "log", SyntheticLog(arguments.turns, namespaces))
    return synthetic_input(folder / "log")


def _plot(paths: Sequence[Path], folder: Path) -> int:
    # Imported here because nothing else needs matplotlib, which is an extra.
    try:
        from pipelines.plots import draw
    except ModuleNotFoundError as error:
        if error.name != "matplotlib":
            raise
        raise ConfigError("plot needs matplotlib: pip install 'hgmem[plots]'") from error
    results = []
    for path in paths:
        try:
            results.append(json.loads(path.read_text(encoding="utf-8")))
        except ValueError as error:
            raise ConfigError(f"{path} is no result document: {error}") from error
        if not isinstance(results[-1], dict) or results[-1].get("case") not in _DRAWN:
            raise ConfigError(f"{path} is no result document of {', '.join(_DRAWN)}")
    for path in draw(results, folder):
        console.print(str(path), highlight=False, markup=False)
    return 0


def _mismatches(result: Mapping[str, Any]) -> list[str]:
    """Return what is listed under any `mismatches` of a result document."""
    found: list[str] = []
    for name, value in result.items():
        if name == "mismatches":
            found += value
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, dict):
                found += _mismatches(part)
    return found


def _show(result: Mapping[str, Any]) -> None:
    if result["case"] == "scale":
        _show_scale(result)
    elif result["case"] == "forget":
        _show_forget(result)
    elif result["case"] == "incremental":
        _show_incremental(result)
    elif result["case"] == "serve":
        _show_parts(result)
    else:
        _show_measures(result)
    where = result["machine"]
    console.print(
        f"{where['cpu']}, {where['cores']} cores, {where['memory_gib']} GiB; commit {result['commit']}", highlight=False
    )


def _show_measures(result: Mapping[str, Any]) -> None:
    measures = {name: value for name, value in result.items() if isinstance(value, dict) and name != "machine"}
    lists = {name for name, value in measures.items() if any(isinstance(item, list) for item in value.values())}
    shown = {name: value for name, value in measures.items() if name not in lists}
    table = plain_table(result["case"], *shown)
    for row in dict.fromkeys(name for values in shown.values() for name in values):
        table.add_row(row, *(str(values.get(row, "")) for values in shown.values()))
    console.print(table)
    rest = {name: value for name, value in result.items() if name not in (*measures, "machine", "commit")}
    console.print(", ".join(f"{name} {value}" for name, value in rest.items()), highlight=False, markup=False)


def _show_parts(result: Mapping[str, Any]) -> None:
    for name, value in result.items():
        if name not in ("machine", "commit"):
            told = ", ".join(f"{one} {many}" for one, many in value.items()) if isinstance(value, dict) else value
            console.print(f"{name}: {told}", highlight=False, markup=False)


def _show_scale(result: Mapping[str, Any]) -> None:
    table = plain_table("turns", "seconds", "CPU seconds", "CPU ms a turn", "peak MiB", "store MiB")
    for row in result["sizes"]:
        table.add_row(
            f"{row['turns']:,}",
            f"{row['wall_seconds']['median']:.2f}",
            f"{row['cpu_seconds']['median']:.2f}",
            f"{row['ms_a_turn']['cpu']['median']:.3f}",
            f"{row['peak_memory_mib']['median']:.0f}",
            f"{row['store_mib']:.1f}",
        )
    console.print(table)
    stages = plain_table("ms a turn", *(f"{row['turns']:,}" for row in result["sizes"]))
    for stage in result["sizes"][0]["ms_a_turn_by_stage"]:
        values = [row["ms_a_turn_by_stage"][stage]["median"] for row in result["sizes"]]
        stages.add_row(stage, *(f"{value:.3f}" for value in values))
    console.print(stages)
    slopes = plain_table("a further turn", "ms", "CPU ms")
    for slope in result["slopes"]:
        steps = f"{slope['from_turns']:,} to {slope['to_turns']:,}"
        slopes.add_row(steps, f"{slope['wall_ms_a_turn']:.3f}", f"{slope['cpu_ms_a_turn']:.3f}")
    console.print(slopes)
    _show_fixed(result)


def _show_incremental(result: Mapping[str, Any]) -> None:
    table = plain_table("rebuild", "new turns", "in namespaces", "seconds", "CPU seconds", "share of CPU")
    rows = {"full": {**result["full"], "new_turns": result["turns"], "namespaces_with_new_turns": result["namespaces"]}}
    for name, row in (rows | result["grown"]).items():
        table.add_row(
            name,
            f"{row['new_turns']:,}",
            f"{row['namespaces_with_new_turns']:,}",
            f"{row['wall_seconds']['median']:.2f}",
            f"{row['cpu_seconds']['median']:.2f}",
            f"{100 * row['cpu_share']['median']:.1f} %" if "cpu_share" in row else "",
        )
    console.print(table)
    _show_fixed(result)


def _show_forget(result: Mapping[str, Any]) -> None:
    about = f"{result['turns']:,} turns, {result['namespaces']:,} namespaces, {result['buckets']:,} buckets"
    console.print(about, highlight=False)
    rebuilt, forgotten = (result[name]["median"] for name in ("rebuild_of_bucket_seconds", "forget_seconds"))
    ratio = result["ratio"]["median"]
    line = f"a bucket's files: {rebuilt:.2f} s; forgetting at once: {forgotten:.2f} s; ratio {ratio:.2f}"
    console.print(line, highlight=False)
    for when, one in result["audits"].items():
        seen = f"{one['files']:,} files, {one['bytes']:,} bytes, {one['seconds']:.1f} s"
        line = f"audit {when.replace('_', ' ')}: {one['canaries_found']} of {result['canaries']} canaries; {seen}"
        console.print(line, highlight=False)


def _show_fixed(result: Mapping[str, Any]) -> None:
    def taken(row: Mapping[str, Any]) -> str:
        return f"{row['wall_seconds']['median']:.2f} s, {row['cpu_seconds']['median']:.2f} s of CPU"

    least = result["smallest"]
    buckets = f"{result['buckets']} buckets" if result["buckets"] else "as many buckets as suit the log"
    console.print(f"engine {result['engine']}, encoder {result['encoder']}, {buckets}", highlight=False)
    console.print(f"starting the engine: {taken(result['engine_start'])}", highlight=False)
    console.print(f"rebuilding {least['turns']} turns: {taken(least)}", highlight=False)


if __name__ == "__main__":
    run_job(main)
