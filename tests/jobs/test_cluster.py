"""The files that describe clusters: what Ray says of them, that they are safe, and an autoscaler that obeys one."""

import copy
import json
import re
import shlex
import subprocess
import sys
import warnings
from importlib.util import find_spec
from pathlib import Path

import pytest
import yaml
from ray.autoscaler._private.util import prepare_config, validate_config

from hgmem_core.config import parse_config
from tests.pipelines.ray_cluster import autoscaling_cluster, wait_for

ROOT = Path(__file__).parents[2]
COMMANDS = ("initialization", "setup", "head_setup", "worker_setup", "head_start_ray", "worker_start_ray")
PROVIDER_KEYS = {"type", "region", "availability_zone", "cache_stopped_nodes", "security_group"}
NODE_KEYS = {"InstanceType", "ImageId", "BlockDeviceMappings", "InstanceMarketOptions"}
SPOT = {"InstanceMarketOptions": {"MarketType": "spot"}}

KUBERAY = {
    "RayJob": """entrypoint backoffLimit activeDeadlineSeconds shutdownAfterJobFinishes ttlSecondsAfterFinished
        rayClusterSpec""",
    "RayService": "serveConfigV2 rayClusterConfig",
    "cluster": "rayVersion authOptions enableInTreeAutoscaling autoscalerOptions headGroupSpec workerGroupSpecs",
    "head": "rayStartParams template",
    "worker": "groupName replicas minReplicas maxReplicas rayStartParams template",
    "pod": "containers securityContext volumes tolerations",
    "container": "name image ports resources volumeMounts",
}
"""Keys of KubeRay's `ray.io/v1` and of pods that the manifests may use; others would be refused."""


def cluster_file():
    return yaml.safe_load((ROOT / "cluster.yaml").read_text())


def checked(config):
    """Return what `ray up` makes of a configuration before it talks to the cloud; raises if that is an error."""
    prepared = prepare_config(copy.deepcopy(config))
    validate_config(prepared)
    # Ray takes any key of these two; AWS and Ray know those in use here.
    assert set(config["provider"]) <= PROVIDER_KEYS
    for node_type in config["available_node_types"].values():
        assert set(node_type["node_config"]) <= NODE_KEYS
    for command in start_commands(config):
        for words in re.findall(r"ray start (.*)", command):
            check_flags(shlex.split(words))
    return prepared


def check_flags(words):
    """Raise if `ray start` does not have these flags."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Ray Serve's own, when it is imported
        from ray.scripts.scripts import start
    start.make_context("ray start", words)


def start_commands(config):
    return [*config["head_start_ray_commands"], *config["worker_start_ray_commands"]]


def test_ray_accepts_the_cluster_file():
    prepared = checked(cluster_file())
    workers = {name: each for name, each in prepared["available_node_types"].items() if each["max_workers"]}
    assert set(workers) == {"hgmem.cpu", "hgmem.gpu"}
    assert {each["min_workers"] for each in workers.values()} == {0}
    assert sum(each["max_workers"] for each in workers.values()) == prepared["max_workers"]
    assert workers["hgmem.gpu"]["resources"]["GPU"] == 1
    assert prepared["idle_timeout_minutes"] > 0
    assert prepared["upscaling_speed"] > 0


@pytest.mark.parametrize(
    "path",
    [
        "max_workers",
        "idle_timeout_minutes",
        "upscaling_speed",
        "rsync_exclude",
        "setup_commands",
        "auth.ssh_user",
        "provider.type",
        "provider.region",
        "provider.security_group.GroupName",
        "available_node_types.hgmem\\.cpu.max_workers",
        "available_node_types.hgmem\\.gpu.resources",
        "available_node_types.hgmem\\.cpu.node_config.InstanceMarketOptions",
    ],
)
def test_a_misspelled_key_is_found(path):
    config = cluster_file()
    *parents, key = [step.replace("\\.", ".") for step in re.split(r"(?<!\\)\.", path)]
    section = config
    for step in parents:
        section = section[step]
    section[key[:-1]] = section.pop(key)
    with pytest.raises(Exception, match=r".") as raised:
        checked(config)
    assert not isinstance(raised.value, OSError)


@pytest.mark.parametrize("commands", ["head_start_ray_commands", "worker_start_ray_commands"])
def test_a_misspelled_flag_of_ray_start_is_found(commands):
    config = cluster_file()
    config[commands] = [command.replace("--object-manager-port", "--object-port") for command in config[commands]]
    with pytest.raises(Exception, match="object-port"):
        checked(config)


def test_the_head_stays_and_workers_may_be_spot():
    config = cluster_file()
    head = config["available_node_types"][config["head_node_type"]]
    assert "InstanceMarketOptions" not in head["node_config"]
    assert head["resources"] == {"CPU": 0}
    for name in ("hgmem.cpu", "hgmem.gpu"):
        assert SPOT.items() <= config["available_node_types"][name]["node_config"].items()


def test_every_node_of_the_cluster_file_asks_for_the_token():
    config = cluster_file()
    assert config["file_mounts"]["/home/ubuntu/.ray/auth_token"] == "~/.ray/auth_token"
    assert any("chmod 600 ~/.ray/auth_token" in command for command in config["setup_commands"])
    starts = [command for command in start_commands(config) if "ray start" in command]
    assert len(starts) == 2
    assert all("RAY_AUTH_MODE=token ray start" in command for command in starts)


def test_nothing_but_ssh_is_open_in_the_cluster_file():
    config = cluster_file()
    head = " ".join(config["head_start_ray_commands"])
    assert "--dashboard-host=127.0.0.1" in head
    assert "IpPermissions" not in config["provider"]["security_group"]


def test_set_up_commands_are_those_of_the_readme_and_every_mounted_file_is_there():
    config = cluster_file()
    set_up = "\n".join(config["setup_commands"])
    readme = (ROOT / "README.md").read_text()
    for words in ("python3 -m venv .venv", ".venv/bin/pip install -qc constraints.txt -e"):
        assert words in set_up
        assert words in readme
    mounted = {remote: local for remote, local in config["file_mounts"].items() if not local.startswith("~")}
    assert all((ROOT / local).exists() for local in mounted.values())
    assert all(remote == f"/home/ubuntu/hgmem/{local}" for remote, local in mounted.items())
    assert {"pyproject.toml", "constraints.txt", "hgmem_core", "pipelines", "jobs"} <= set(mounted.values())
    assert {".git", ".venv", "__pycache__"} <= set(config["rsync_exclude"])
    for name in COMMANDS:
        for command in config[f"{name}_commands"]:
            done = subprocess.run(["bash", "-n", "-c", command], capture_output=True, text=True)
            assert done.returncode == 0, (command, done.stderr)


def test_the_mount_that_the_cluster_file_shows_is_a_valid_set_up():
    """The commented lines, without their marks, are set-up commands."""
    lines = (ROOT / "cluster.yaml").read_text().splitlines()
    shown = [number for number, line in enumerate(lines) if re.match(r"    # (- |    )(sudo|mountpoint|fs-|>-)", line)]
    assert len(shown) >= 4
    for number in shown:
        lines[number] = lines[number].replace("    # ", "    ", 1)
    config = yaml.safe_load("\n".join(lines))
    checked(config)
    mounts = [command for command in config["setup_commands"] if "/mnt/hgmem" in command]
    assert any("mount -t nfs4" in command and command.endswith(":/ /mnt/hgmem") for command in mounts)


DRIVER = """
import json, os
import ray

ray.init(address=os.environ["ADDRESS"], log_to_driver=False)

def where(row):
    return {"on": os.environ["RAY_NODE_TYPE_NAME"], "square": row["id"] ** 2}

@ray.remote(num_cpus=0, num_gpus=1)
def on_a_gpu():
    return os.environ["RAY_NODE_TYPE_NAME"]

before = [node["Resources"].get("CPU", 0) for node in ray.nodes()]
gpu = on_a_gpu.remote()
rows = ray.data.range(8, override_num_blocks=2).map(where).take_all()
print(json.dumps({"before": before, "rows": rows, "gpu": ray.get(gpu)}))
"""


@pytest.mark.ray
def test_the_autoscaler_starts_the_workers_of_the_cluster_file_and_ends_them():
    config = checked(cluster_file())
    small = {"object_store_memory": 80_000_000}
    resources = {
        config["head_node_type"]: config["available_node_types"][config["head_node_type"]]["resources"],
        "hgmem.cpu": {"CPU": 2, **small},
        "hgmem.gpu": {"CPU": 0, "GPU": 1, **small},
    }
    with autoscaling_cluster(config, resources, idle_timeout_minutes=0.1) as head:
        environment = {**head.environment, "ADDRESS": head.address}
        command = [sys.executable, "-c", DRIVER]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=120)
        assert done.returncode == 0, done.stderr
        result = json.loads(done.stdout.splitlines()[-1])
        assert result["before"] == [0]
        assert sorted(row["square"] for row in result["rows"]) == [number**2 for number in range(8)]
        assert {row["on"] for row in result["rows"]} == {"hgmem.cpu"}
        assert result["gpu"] == "hgmem.gpu"
        assert head.nodes() > 1
        wait_for(lambda: head.nodes() == 1, 60)


def keys(what):
    return set(KUBERAY[what].split())


def manifests(name):
    return list(yaml.safe_load_all((ROOT / "docs" / "kuberay" / name).read_text()))


def check_manifest(name, kind):
    """Check a manifest of KubeRay as far as that goes without it; return it, its cluster and its pods."""
    (manifest,) = manifests(name)
    assert (manifest["apiVersion"], manifest["kind"]) == ("ray.io/v1", kind)
    assert set(manifest) == {"apiVersion", "kind", "metadata", "spec"}
    spec = manifest["spec"]
    assert set(spec) <= keys(kind)
    cluster = spec["rayClusterSpec" if kind == "RayJob" else "rayClusterConfig"]
    assert set(cluster) <= keys("cluster")
    assert set(cluster["headGroupSpec"]) == keys("head")
    pods = {"head": cluster["headGroupSpec"]["template"]["spec"]}
    for group in cluster["workerGroupSpecs"]:
        assert set(group) == keys("worker")
        assert group["minReplicas"] <= group["replicas"] <= group["maxReplicas"]
        pods[group["groupName"]] = group["template"]["spec"]
    for group in (cluster["headGroupSpec"], *cluster["workerGroupSpecs"]):
        flags = [f"--{flag}={value}" for flag, value in group["rayStartParams"].items()]
        check_flags(flags)
        assert all(isinstance(value, str) for value in group["rayStartParams"].values())
    for pod in pods.values():
        assert set(pod) <= keys("pod")
        (container,) = pod["containers"]
        assert set(container) <= keys("container")
        assert container["resources"]["requests"] == container["resources"]["limits"]
        volumes = {volume["name"]: volume["persistentVolumeClaim"]["claimName"] for volume in pod["volumes"]}
        assert [(each["name"], each["mountPath"]) for each in container["volumeMounts"]] == [("hgmem", "/mnt/hgmem")]
        assert volumes == {"hgmem": "hgmem"}
    return manifest, cluster, pods


@pytest.mark.parametrize(("name", "kind"), [("rayjob.yaml", "RayJob"), ("rayservice.yaml", "RayService")])
def test_clusters_on_kubernetes_ask_for_the_token_and_grow_by_themselves(name, kind):
    _, cluster, pods = check_manifest(name, kind)
    (ray,) = re.findall(r"^ray==(.*)$", (ROOT / "constraints.txt").read_text(), re.MULTILINE)
    assert cluster["rayVersion"] == ray
    assert cluster["authOptions"] == {"mode": "token"}
    assert cluster["enableInTreeAutoscaling"] is True
    assert cluster["headGroupSpec"]["rayStartParams"]["num-cpus"] == "0"
    assert len({pod["containers"][0]["image"] for pod in pods.values()}) == 1


def test_the_rayjob_runs_a_job_that_exists_on_workers_that_come_and_go():
    manifest, cluster, pods = check_manifest("rayjob.yaml", "RayJob")
    python, flag, module, *arguments = manifest["spec"]["entrypoint"].split()
    assert (python, flag) == ("python", "-m")
    assert find_spec(module) is not None
    assert all(argument.startswith("/mnt/hgmem/") for argument in arguments)
    assert manifest["spec"]["shutdownAfterJobFinishes"] is True
    assert {group["groupName"]: group["minReplicas"] for group in cluster["workerGroupSpecs"]} == {"cpu": 0, "gpu": 0}
    assert pods["gpu"]["containers"][0]["resources"]["limits"]["nvidia.com/gpu"] == "1"


def test_the_rayservice_serves_one_application_by_its_import_path():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from ray.serve.schema import ServeDeploySchema
    manifest, _, pods = check_manifest("rayservice.yaml", "RayService")
    config = yaml.safe_load(manifest["spec"]["serveConfigV2"])
    (application,) = ServeDeploySchema.model_validate(config).applications
    assert application.import_path == "pipelines.serving:app"
    assert application.route_prefix == "/"
    assert {"containerPort": 8000, "name": "serve"} in pods["head"]["containers"][0]["ports"]


def test_the_volume_is_one_that_many_nodes_may_write():
    (claim,) = manifests("store.yaml")
    assert (claim["apiVersion"], claim["kind"]) == ("v1", "PersistentVolumeClaim")
    assert claim["metadata"]["name"] == "hgmem"
    assert claim["spec"]["accessModes"] == ["ReadWriteMany"]


def test_the_configuration_for_clusters_is_valid_and_keeps_to_the_shared_folder():
    config = parse_config((ROOT / "jobs" / "configs" / "cluster.toml").read_text())
    paths = [config.store.root, config.encoder.cache_dir, *config.inputs[0].paths]
    assert config.run.engine == "ray"
    assert config.run.ray.autoscaling
    assert all(path.startswith("/mnt/hgmem/") for path in paths)
    assert config.store.buckets > 8


def test_the_documentation_names_what_is_there():
    text = (ROOT / "docs" / "cluster.md").read_text()
    for path in re.findall(r"`((?:docs|jobs)/[\w./-]+\.(?:yaml|toml|md))`", text):
        assert (ROOT / path).is_file(), path
    for copied in re.findall(r"^COPY (?:--\S+ )?(.*) \S+$", text, re.MULTILINE):
        assert all((ROOT / source).exists() for source in copied.split()), copied
    assert "python -m jobs.rebuild jobs/configs/cluster.toml" in text
