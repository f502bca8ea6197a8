"""Hooks for redaction by dotted name, and their use on what an importer yields."""

import importlib
from collections.abc import Sequence
from functools import lru_cache

from hgmem_core.messages import Dropped, Message
from hgmem_core.redaction import Hook, redact
from hgmem_core.section import ConfigError
from hgmem_core.trajectories import Run


def hook_of(name: str) -> Hook:
    """Return the hook that a name such as `mycompany.privacy:mask` stands for.

    Raises:
        ConfigError: There is no such module, or nothing callable of that name in it.
    """
    module, _, attribute = name.partition(":")
    try:
        hook = getattr(importlib.import_module(module), attribute, None)
    except ImportError as error:
        raise ConfigError(
            f"imports.redact: {name} cannot be imported ({error}); name a module on the Python path, on every worker"
        ) from error
    if not callable(hook):
        raise ConfigError(f"imports.redact: {name} is nothing that can be called; name a function from str to str")
    found: Hook = hook
    return found


def identities_of(names: Sequence[str]) -> list[str]:
    """Return what tells hooks from others that would take out something else: their names and revisions."""
    return [f"{name}@{getattr(hook_of(name), 'revision', '')}" for name in names]


class Redactor:
    """Redacts what an importer yields with hooks, one after the other."""

    def __init__(self, names: Sequence[str]) -> None:
        """Find the hooks."""
        self._hooks = [(name, _guarded(name)) for name in names]

    def __call__(self, item: Message | Run | Dropped) -> Message | Run | Dropped:
        """Return an item without what the hooks take out of it; rejected, without any text, where one refuses."""
        for name, hook in self._hooks:
            try:
                item = redact(item, hook)
            except _HookFailed as error:
                return Dropped(item.row_id, "rejected", f"redaction by {name} failed: {error}", None, item.namespace)
        return item


class _HookFailed(Exception):
    """A hook refused a text, or gave none; says how, and nothing of the text."""


@lru_cache(maxsize=64)
def _guarded(name: str) -> Hook:
    hook = hook_of(name)

    def call(text: str) -> str:
        try:
            found: object = hook(text)
        except ValueError as error:  # not about the text: the hook is broken, and the job ends
            raise _HookFailed(type(error).__name__) from None
        if not isinstance(found, str):
            raise _HookFailed(f"it gave {type(found).__name__}, not str")
        return found

    return call
