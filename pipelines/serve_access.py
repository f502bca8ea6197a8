"""Who asks, and what of: the one place where the namespaces of a request are checked."""

from collections.abc import Sequence
from dataclasses import dataclass

from pipelines.serve_keys import EVERYTHING, Grant, Key, KeyRing, Right
from pipelines.serve_problems import Problem

ANYBODY = "-"
"""In the audit log, who asks an endpoint that has no keys."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks.

    Attributes:
        key_id: Of the key, or `ANYBODY`.
        grants: What the caller may do.
    """

    key_id: str
    grants: tuple[Grant, ...]

    def may(self, right: Right, namespace: str) -> bool:
        """Say whether the caller has a right to a namespace."""
        return any(grant.allows(namespace, right) for grant in self.grants)

    def require(self, right: Right, namespaces: Sequence[str]) -> None:
        """Let a request pass that names namespaces, before anything is looked up in them.

        Raises:
            Problem: 403, the same whether there is such a namespace or not.
        """
        for place, namespace in enumerate(namespaces):
            if not self.may(right, namespace):
                field = "namespace" if len(namespaces) == 1 else f"namespaces.{place}"
                raise Problem(
                    403, f"the key has no right to {right} there", [(field, "outside of what the key may use")]
                )

    def require_everything(self, right: Right) -> None:
        """Let a request pass that concerns all namespaces.

        Raises:
            Problem: 403.
        """
        if not any(grant.prefix == EVERYTHING and grant.allows(EVERYTHING, right) for grant in self.grants):
            raise Problem(403, f"this takes a key with the grant *:{right}")


_EVERYTHING = (Grant(prefix=EVERYTHING, right="admin"),)


class Access:
    """Tells who asks by the key that came with a request; without keys, whoever asks from this machine may do all."""

    def __init__(self, keys: KeyRing | None) -> None:
        """Take the keys; None for none."""
        self._keys = keys

    @property
    def has_keys(self) -> bool:
        """Whether a key has to come with a request."""
        return self._keys is not None

    def caller(self, authorization: str, is_local: bool) -> Caller:
        """Return who asks.

        Args:
            authorization: The header of that name; empty for none.
            is_local: Whether the connection comes from this machine.

        Raises:
            Problem: 401 for whoever has no good key; 403 for other machines where there are no keys.
        """
        if self._keys is None:
            if not is_local:
                raise Problem(403, "without keys, only the endpoint's own machine may ask: set serve.keys")
            return Caller(ANYBODY, _EVERYTHING)
        scheme, _, text = authorization.partition(" ")
        key: Key | None = self._keys.find(text.strip()) if scheme.lower() == "bearer" else None
        if key is None:
            raise Problem(
                401, "a good key has to come as `Authorization: Bearer KEY`", headers={"WWW-Authenticate": "Bearer"}
            )
        return Caller(key.id, key.grants)

    def refresh(self) -> None:
        """Read the keys again, so that new ones are known and revoked ones refused.

        Raises:
            StoreError: They cannot be read; those known so far stay.
        """
        if self._keys is not None:
            self._keys.refresh()
