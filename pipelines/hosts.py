"""This host and the processes on it, told apart over machines, containers, restarts and recycled process ids."""

import hashlib
import os
import re
import socket
from contextlib import suppress
from functools import cache
from pathlib import Path


def host_name() -> str:
    """Return the name of this machine, for people."""
    return socket.gethostname()


@cache
def host_id() -> str:
    """Return a name, without `-`, of all that shares this process's process ids.

    Process ids mean something within one container of one machine until it is started again; cloned machines and
    containers may share a host name.
    """
    named = re.sub("[^A-Za-z0-9.]+", "_", host_name())[:64]
    return f"{named}_{hashlib.sha256(f'{_boot()} {_pid_namespace()}'.encode()).hexdigest()[:8]}"


def _boot() -> str:
    with suppress(OSError):  # not in every sandbox; the host name has to do there
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return ""


def _pid_namespace() -> str:
    with suppress(OSError):
        return os.readlink("/proc/self/ns/pid")
    return ""


def process_start(pid: int) -> str | None:
    """Return when a process of this host began, in ticks since the machine did; None where that cannot be seen."""
    stat = _stat(pid)
    return stat[19] if stat else None


def is_gone(pid: int, started: str | None = None) -> bool:
    """Say whether a process of this host has ended, also if its id went to another or nobody has reaped it yet.

    Args:
        pid: Its process id.
        started: What `process_start` said of it; None if that is not known.
    """
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return True
    except PermissionError:  # somebody else's process, and alive
        pass
    stat = _stat(pid)
    if stat is None:
        return False
    return stat[0] in "ZX" or (started is not None and stat[19] != started)


def _stat(pid: int) -> list[str] | None:
    """Return what `/proc` says of a process from its state on (proc_pid_stat(5)); None where it says nothing."""
    with suppress(OSError):
        # The name before it, in brackets, may hold spaces and brackets.
        return Path(f"/proc/{pid}/stat").read_text(errors="replace").rpartition(")")[2].split()
    return None
