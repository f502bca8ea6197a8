"""The owner of Ray Train: a training on workers that average their gradients, with checkpoints to go on from.

Every worker has the whole training at hand and takes its share of each batch (`hgmem_core.training_run`). A worker that
is lost takes the others along; all begin again at the last checkpoint. A run that ended early, whoever ended it, is
gone on with when it is started again: its folder holds the checkpoint.
"""

import fcntl
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import shorten
from typing import Any, Protocol

import ray
import ray.exceptions
import ray.train
import torch
import torch.distributed
from ray.train.torch import TorchTrainer, get_device
from safetensors.numpy import load_file, save_file

from hgmem_core.data_parallel import DataParallel
from hgmem_core.reinforce import one_thread
from hgmem_core.run_config import RunConfig
from hgmem_core.trained import TrainedModelError
from hgmem_core.training_run import Arrays, RunState, TrainingRun
from pipelines.engine import ClusterError
from pipelines.preflight import PreflightError
from pipelines.progress import Progress
from pipelines.ray_connection import alive_nodes, connected, last_line

_LEARNER, _BEST, _PROGRESS = "learner.pt", "best.safetensors", "progress.json"
"""The files of a checkpoint; there is no best one before the first look at what is held back."""

_POLL_SECONDS = 0.5
_SAID_CHARS = 240
"""Of an error that Ray tells of, which may be pages."""


class Training(Protocol):
    """Everything that a training takes; travels to other processes."""

    def start(self, parallel: DataParallel) -> TrainingRun:
        """Return the training at its beginning, for one of several workers."""
        ...


@dataclass(frozen=True, slots=True)
class Trained:
    """What a training came to: its best weights, and its curve (`hgmem_core.training_run.TrainingRun`)."""

    weights: Arrays
    curve: list[dict[str, float]]


def train_on_ray(training: Training, folder: Path, config: RunConfig, progress: Progress) -> Trained:
    """Train on the Ray of a configuration.

    Args:
        training: What to train. What can be wrong with it should be known before.
        folder: Of this training and no other, that every node sees: checkpoints lie there, and a run that ended early
            is gone on with from the last.
        config: Where Ray is, and the workers.
        progress: Told of epochs.

    Raises:
        TrainedModelError: The same training is going on already.
        PreflightError: The cluster has no room for the workers, or is not as it should be.
        ClusterError: There is no Ray, workers were lost too often, or nothing was finished for too long.
    """
    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    with _claimed(folder), connected(config, {}, folder, progress):
        _check_room(config)
        board = _Board.options(num_cpus=0).remote()  # type: ignore[attr-defined]
        # mypy sees Ray Train's first version, where these take and give other types.
        trainer = TorchTrainer(
            partial(_work, training, config.train.checkpoint_epochs, board),  # type: ignore[arg-type]
            scaling_config=ray.train.ScalingConfig(num_workers=config.train.workers, use_gpu=config.train.use_gpu),
            run_config=ray.train.RunConfig(
                name=folder.name,
                storage_path=str(folder.parent),
                failure_config=ray.train.FailureConfig(max_failures=config.train.retries),
                checkpoint_config=ray.train.CheckpointConfig(num_to_keep=1),
            ),
        )
        # In a thread of its own: in the main one Ray would take interrupts away from the job.
        pool = ThreadPoolExecutor(1)
        fit: Future[Any] = pool.submit(trainer.fit)
        pool.shutdown(wait=False)
        _watch(fit, board, config, progress)
        try:
            done: Trained = fit.result().return_value
        except (ray.train.TrainingFailedError, ray.exceptions.RayError) as error:
            raise ClusterError(
                f"training failed on Ray, with run.train.retries={config.train.retries} ({_why(error)}). The last "
                f"checkpoint is kept in {folder}: run this again to go on from it, or remove the folder to begin anew"
            ) from error
        return done


@contextmanager
def _claimed(folder: Path) -> Iterator[None]:
    """Keep others of this machine from the same training; a process that ends, however it does, gives it back.

    Raises:
        TrainedModelError: Another one has it.
    """
    path = folder.with_name(f"{folder.name}.lock")
    with path.open("wb") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise TrainedModelError(
                f"the same training is going on already, with its checkpoints in {folder}: wait until it is over, or "
                "end it"
            ) from error
        try:
            yield
        finally:
            path.unlink(missing_ok=True)


def _why(error: Exception) -> str:
    """Return what happened to each worker that failed, else what the error says, cut where it is long."""
    failures: dict[int, Exception] = getattr(error, "worker_failures", {})
    said = [f"worker {number}: {shorten(last_line(one), _SAID_CHARS)}" for number, one in failures.items()]
    return "; ".join(said) or shorten(last_line(error), _SAID_CHARS)


def _check_room(config: RunConfig) -> None:
    """Refuse more workers than a cluster of fixed size has room for: Ray would wait for ever."""
    train = config.train
    kinds = ["CPU", "GPU"] if train.use_gpu else ["CPU"]
    room = sum(min(int(node["Resources"].get(kind, 0)) for kind in kinds) for node in alive_nodes())
    if room < train.workers and not config.ray.autoscaling:
        raise PreflightError(
            f"run.train.workers={train.workers} takes a {' and a '.join(kinds)} each; the cluster has room for {room}: "
            "take fewer, or add nodes"
        )


def _watch(fit: Future[Any], board: Any, config: RunConfig, progress: Progress) -> None:  # noqa: ANN401  an actor's handle
    """Pass the rows of the curve on until the training is over."""
    progress.start("train", config.train.epochs)
    reached, before, seen, moved_at = 0, 0, 0, time.monotonic()
    is_over = False
    while not is_over:
        is_over = bool(wait([fit], _POLL_SECONDS).done)
        for epoch in _told(board, seen):
            if epoch != before + 1:
                why = "a worker was lost" if seen else "an earlier run ended before it was over"
                progress.note(f"{why}: training goes on from epoch {epoch}")
            progress.advance("train", max(0, epoch - reached))
            reached, before, seen, moved_at = max(reached, epoch), epoch, seen + 1, time.monotonic()
        if not is_over and time.monotonic() > moved_at + 60 * config.stall_minutes:
            raise ClusterError(
                f"no epoch was finished for run.stall_minutes={config.stall_minutes:g}: {config.train.workers} workers "
                f"wait for a CPU{' and a GPU' if config.train.use_gpu else ''} each, or an epoch takes longer than "
                "that. Add nodes, take fewer workers, or allow more time; the last checkpoint is kept"
            )
    progress.finish("train")


def _told(board: Any, seen: int) -> list[int]:  # noqa: ANN401  an actor's handle
    try:
        epochs: list[int] = ray.get(board.since.remote(seen))
    except ray.exceptions.RayError:
        return []  # the training itself says what happened to Ray
    return epochs


@ray.remote
class _Board:
    """Where the first worker writes which epochs are over."""

    def __init__(self) -> None:
        self._epochs: list[int] = []

    def tell(self, epoch: int) -> None:
        self._epochs.append(epoch)

    def since(self, place: int) -> list[int]:
        return self._epochs[place:]


def _work(training: Training, checkpoint_epochs: int, board: Any) -> Trained:  # noqa: ANN401  an actor's handle
    """Train as one of the workers."""
    context = ray.train.get_context()
    worker, workers = context.get_world_rank(), context.get_world_size()
    parallel = DataParallel(worker, workers, _average if workers > 1 else None, str(get_device()))
    with one_thread():
        run = training.start(parallel)
        found = ray.train.get_checkpoint()
        if found is not None:
            with found.as_directory() as folder:
                run.load(read_state(Path(folder)))
        while not run.is_over:
            run.next_epoch()
            if not worker:
                board.tell.remote(run.epochs)
            if run.is_over or run.epochs % checkpoint_epochs == 0:
                _report(run, worker)
    return Trained(run.weights(), run.curve)


def _report(run: TrainingRun, worker: int) -> None:
    """Hand in a checkpoint; all workers do so at once, but it is the first one's."""
    with tempfile.TemporaryDirectory() as folder:
        checkpoint = None
        if not worker:
            write_state(run.state(), Path(folder))
            checkpoint = ray.train.Checkpoint.from_directory(folder)
        ray.train.report({"epoch": run.epochs}, checkpoint)


def _average(tensors: Sequence[torch.Tensor]) -> None:
    """Replace each tensor by its mean over all workers, in one exchange."""
    flat = torch.cat([tensor.reshape(-1) for tensor in tensors])
    torch.distributed.all_reduce(flat)
    flat /= torch.distributed.get_world_size()
    parts = torch.split(flat, [tensor.numel() for tensor in tensors])
    for tensor, part in zip(tensors, parts, strict=True):
        tensor.copy_(part.view_as(tensor))


def write_state(state: RunState, folder: Path) -> None:
    """Write a state into a folder."""
    torch.save(state.learner, folder / _LEARNER)
    if state.best is not None:
        save_file({name: array.copy() for name, array in state.best.items()}, folder / _BEST)
    (folder / _PROGRESS).write_text(json.dumps(state.progress))


def read_state(folder: Path) -> RunState:
    """Read a state that `write_state` wrote."""
    best = load_file(folder / _BEST) if (folder / _BEST).exists() else None
    learner = torch.load(folder / _LEARNER, weights_only=True, map_location="cpu")
    return RunState(learner, best, json.loads((folder / _PROGRESS).read_text()))
