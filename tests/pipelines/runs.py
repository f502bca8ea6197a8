"""Small invented logs of agents' runs for the pipeline tests."""

import json

from hgmem_core.config import config_from

HOUSEHOLD = {
    "heat": ("Put a hot {thing} on the table", ["go to fridge 1", "take {thing} 1 from fridge 1", "go to microwave 1"]),
    "clean": ("Put a clean {thing} in the drawer", ["go to sink 1", "take {thing} 1 from sink 1", "clean {thing} 1"]),
    "look": ("Look at the {thing} under the lamp", ["go to desk 1", "take {thing} 1 from desk 1", "use lamp 1"]),
}
GOOD_END, BAD_END = "put {thing} 1 in/on table 1", "examine shelf 1"


def runs(users=("ana", "bo"), things=("egg", "mug", "pan", "cup")):
    """Runs of agents for each user: of each kind of task some that succeed and some that fail."""
    found = []
    for user in users:
        for kind, (task, actions) in HOUSEHOLD.items():
            for number, thing in enumerate(things):
                good = number % 2 == 0
                steps = [*actions, GOOD_END if good else BAD_END]
                found.append(
                    {
                        "id": f"{kind}-{thing}",
                        "user": user,
                        "task": f"{task} for {user}.".format(thing=thing),
                        "task_id": f"{kind}-{thing}",
                        "steps": [
                            {"action": action.format(thing=thing), "observation": f"You did {place}."}
                            for place, action in enumerate(steps)
                        ],
                        "outcome": "success" if good else "failure",
                        "time": f"2024-03-{1 + number:02d}T10:00:00Z",
                    }
                )
    return found


def write_runs(path, content):
    path.write_text("".join(json.dumps(row) + "\n" for row in content), encoding="utf-8")
    return path


def runs_input(*paths, format="trajectories", namespace="acme/{user}"):
    return {"format": format, "paths": [str(path) for path in paths], "namespace": namespace}


def runs_config(root, *logs, buckets=3, more=(), **sections):
    """A configuration of logs of runs, each an input, and of `more` inputs."""
    inputs = [runs_input(log) for log in logs]
    tree = {"store": {"root": str(root), "buckets": buckets}, "encoder": {"name": "static"}, "inputs": [*inputs, *more]}
    return config_from({**tree, **sections})
