"""A conversation as a tree: an edited message or another answer is a branch, and one branch is the conversation."""

from collections.abc import Mapping

ABANDONED = "stands on a branch of the conversation that was given up"
"""Why a message of another branch is left out."""


class MessageTree:
    """The messages of a conversation by the one that each follows; unknown ones and circles end a branch.

    >>> tree = MessageTree({"q": None, "a": "q", "q2": "a", "q2 edited": "a", "a2": "q2 edited"})
    >>> tree.branch("a2"), tree.places(["q", "a", "q2 edited"])
    (['q', 'a', 'q2 edited', 'a2'], ['q', 'a', 'q2'])
    """

    def __init__(self, parents: Mapping[str, str | None]) -> None:
        """Take the parent of each message, None for those without one; siblings stand in the order of their making."""
        self._parents = parents
        self._eldest: dict[str, str] = {}
        """The first message that followed another."""
        for node, parent in parents.items():
            if parent is not None and parent in parents:
                self._eldest.setdefault(parent, node)

    def branch(self, leaf: str) -> list[str]:
        """Return the messages that lead to `leaf`, the first one first, `leaf` included."""
        found: dict[str, None] = {}
        node: str | None = leaf
        while node is not None and node in self._parents and node not in found:
            found[node] = None
            node = self._parents[node]
        return list(reversed(found))

    def places(self, branch: list[str]) -> list[str]:
        """Return for each message of a branch the one that first stood at its place, which a later branch replaces.

        The first message that followed another keeps being that, however the conversation goes on.
        """
        places: dict[str, None] = {}
        last = None
        for node in branch:
            last = node if last is None else self._eldest.get(last, node)
            if last in places:  # the eldest go round in a circle
                last = node
            places[last] = None
        return list(places)
