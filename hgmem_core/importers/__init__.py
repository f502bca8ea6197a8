"""Importers: the rows of a log file in, one message or one refusal out for each, whatever the log's format."""

from hgmem_core.config import Format
from hgmem_core.importers.hotpotqa import read_hotpotqa
from hgmem_core.importers.locomo import read_locomo
from hgmem_core.importers.musique import read_musique
from hgmem_core.importers.openai_chat import read_openai_chat
from hgmem_core.importers.tabular import read_tabular
from hgmem_core.messages import Importer

IMPORTERS: dict[Format, Importer] = {
    "parquet": read_tabular,
    "jsonl": read_tabular,
    "csv": read_tabular,
    "openai": read_openai_chat,
    "locomo": read_locomo,
    "hotpotqa": read_hotpotqa,
    "musique": read_musique,
}
"""The importer of each input format."""
