"""Importers: the rows of a log file in, one message, run or refusal out for each, whatever the log's format."""

from hgmem_core.importers.alfworld import read_alfworld
from hgmem_core.importers.chatgpt import read_chatgpt
from hgmem_core.importers.claude import read_claude
from hgmem_core.importers.hotpotqa import read_hotpotqa
from hgmem_core.importers.intercode import read_intercode
from hgmem_core.importers.locomo import read_locomo
from hgmem_core.importers.longmemeval import read_longmemeval
from hgmem_core.importers.musique import read_musique
from hgmem_core.importers.openai_chat import read_openai_chat
from hgmem_core.importers.otel import read_otel
from hgmem_core.importers.runs import TrajectoryImporter
from hgmem_core.importers.runs_jsonl import read_trajectories
from hgmem_core.importers.slack import read_slack
from hgmem_core.importers.tabular import read_tabular
from hgmem_core.importers.tau_bench import read_tau_bench
from hgmem_core.messages import Importer

IMPORTERS: dict[str, Importer] = {
    "parquet": read_tabular,
    "jsonl": read_tabular,
    "csv": read_tabular,
    "openai": read_openai_chat,
    "chatgpt": read_chatgpt,
    "claude": read_claude,
    "slack": read_slack,
    "otel": read_otel,
    "locomo": read_locomo,
    "hotpotqa": read_hotpotqa,
    "musique": read_musique,
    "2wiki": read_hotpotqa,
    "longmemeval": read_longmemeval,
}
"""The importer of each format of messages."""

TRAJECTORY_IMPORTERS: dict[str, TrajectoryImporter] = {
    "tau-bench": read_tau_bench,
    "intercode": read_intercode,
    "alfworld": read_alfworld,
    "trajectories": read_trajectories,
}
"""The importer of each format of agents' runs."""
