"""What each namespace of a table was made from, and tables put together from an earlier one and a few new namespaces.

Every stage treats each namespace by itself, so that a namespace whose inputs did not change keeps its rows.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from hgmem_core.ids import digest_of_namespaces, digest_of_parts
from hgmem_core.schemas import STRING, TableSchema, namespace_ranges

LINEAGE = TableSchema(
    "LINEAGE",
    ("namespace",),
    pa.schema([pa.field(name, STRING, nullable=False) for name in ("namespace", "inputs", "digest")]),
)
"""For each namespace of a stage's input: a digest of what went in, and of what the stage made of it."""


@dataclass(frozen=True, slots=True)
class Lineage:
    """LINEAGE, by namespace.

    Attributes:
        inputs: The digest of what went in.
        digests: The digest of what came out.
    """

    inputs: Mapping[str, str]
    digests: Mapping[str, str]

    @classmethod
    def of(cls, table: pa.Table) -> "Lineage":
        """Read a LINEAGE table."""
        names, inputs, digests = (column.to_pylist() for column in table.columns)
        return cls(dict(zip(names, inputs, strict=True)), dict(zip(names, digests, strict=True)))

    def table(self) -> pa.Table:
        """Write a LINEAGE table."""
        names = sorted(self.inputs)
        columns = [names, [self.inputs[name] for name in names], [self.digests[name] for name in names]]
        return pa.Table.from_arrays([pa.array(column, STRING) for column in columns], schema=LINEAGE.arrow)

    @property
    def digest(self) -> str:
        """One digest of all that came out."""
        return digest_of_namespaces(self.digests)


def join_digests(inputs: Sequence[Mapping[str, str]]) -> dict[str, str]:
    """Return for each namespace of any input one digest of all its inputs.

    Inputs after the last that has the namespace make no difference: those of later imports that do not touch it.

    >>> sorted(join_digests([{"a": "1"}, {"a": "2", "b": "3"}])) == ["a", "b"]
    True
    """
    parts: dict[str, list[str]] = {}
    for number, one in enumerate(inputs):
        for name, digest in one.items():
            found = parts.setdefault(name, [])
            found += [""] * (number - len(found))
            found.append(digest)
    return {name: digest_of_parts(found) for name, found in parts.items()}


def select(table: pa.Table, namespaces: Set[str]) -> pa.Table:
    """Return the rows of some namespaces."""
    wanted = pa.array(sorted(namespaces), STRING)
    return table.filter(pc.is_in(table.column("namespace"), value_set=wanted))


def spans(old: pa.Table, new: pa.Table, kept: Set[str]) -> list[tuple[bool, int, int]]:
    """Return whose rows stand where when two tables sorted by namespace become one.

    Args:
        old: Gives the namespaces in `kept`; its others are left out.
        new: Gives all its namespaces, none of which is in `kept`.
        kept: Namespaces; those that `old` lacks make no difference.

    Returns:
        Runs of rows in order: whether they are the new table's, the first, and the one after the last.
    """
    runs = [(name, False, start, stop) for name, start, stop in namespace_ranges(old) if name in kept]
    runs += [(name, True, start, stop) for name, start, stop in namespace_ranges(new)]
    joined: list[tuple[bool, int, int]] = []
    for _, is_new, start, stop in sorted(runs):
        if joined and joined[-1][0] == is_new and joined[-1][2] == start:
            joined[-1] = (is_new, joined[-1][1], stop)
        else:
            joined.append((is_new, start, stop))
    return joined


def splice(old: pa.Table, new: pa.Table, kept: Set[str]) -> pa.Table:
    """Return the rows of `old` for the namespaces in `kept` and all rows of `new`, sorted by namespace; see `spans`."""
    parts = [(new if is_new else old).slice(start, stop - start) for is_new, start, stop in spans(old, new, kept)]
    return pa.concat_tables(parts) if parts else new
