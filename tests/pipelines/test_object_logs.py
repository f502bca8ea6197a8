import pytest

from pipelines.log_files import LogFileError, expand_paths
from pipelines.object_storage import ObjectStorage
from tests.pipelines.logs import config_of, files_of, rows, run, write_jsonl


@pytest.fixture
def logs(bucket, tmp_path):
    """An address with logs of two users below it, and other things around."""
    storage = ObjectStorage(bucket)
    for user in ("ana", "bo"):
        log = write_jsonl(tmp_path / f"{user}.jsonl", rows(users=(user,)))
        storage.put(f"logs/2024/{user}.jsonl", log)
    for other in ("logs/2024/_SUCCESS", "logs/2024/deep/old.jsonl", "logs/.hidden/x.jsonl", "other/z.jsonl"):
        storage.put(other, b"{}")
    return f"{bucket}/logs"


def names(logs, *paths):
    return [path.removeprefix(f"{logs}/") for path in expand_paths(paths)]


def test_logs_are_named_one_by_one_by_pattern_and_by_folder(logs):
    assert names(logs, f"{logs}/2024/bo.jsonl") == ["2024/bo.jsonl"]
    assert names(logs, f"{logs}/2024/*.jsonl") == ["2024/ana.jsonl", "2024/bo.jsonl"]
    assert names(logs, f"{logs}/20*/b?.jsonl", f"{logs}/2024/*.jsonl") == ["2024/bo.jsonl", "2024/ana.jsonl"]
    assert names(logs, f"{logs}/**/*.jsonl") == ["2024/ana.jsonl", "2024/bo.jsonl", "2024/deep/old.jsonl"]
    assert names(logs, logs) == ["2024/ana.jsonl", "2024/bo.jsonl", "2024/deep/old.jsonl"]
    with pytest.raises(LogFileError, match=r"none\.jsonl: does not exist"):
        names(logs, f"{logs}/none.jsonl")


def test_a_pattern_lists_no_more_than_its_folder(logs, object_server):
    object_server.counts()
    names(logs, f"{logs}/2024/*.jsonl")
    assert object_server.prefixes == ["logs/2024/"]


def test_logs_in_object_storage_build_the_store_that_they_build_from_a_disk(logs, tmp_path):
    run(config_of(tmp_path / "store", f"{logs}/2024/*.jsonl"))
    run(config_of(tmp_path / "other", tmp_path / "ana.jsonl", tmp_path / "bo.jsonl"))
    there, here = files_of(tmp_path / "store"), files_of(tmp_path / "other")
    different = {name for name in there if there[name] != here[name]}
    assert different == {"imports/000001.json"}  # where its logs were
    assert f'"{logs}/2024/ana.jsonl"' in there["imports/000001.json"].decode()


def test_a_log_is_fetched_once_and_again_when_it_changed(logs, tmp_path, object_server):
    config = config_of(tmp_path / "store", f"{logs}/2024/ana.jsonl")
    fetched = ("GET", "logs/2024/ana.jsonl")
    run(config)
    assert object_server.counts()[fetched] == 1
    assert run(config).imported.number is None
    assert object_server.counts()[fetched] == 0
    log = write_jsonl(tmp_path / "more.jsonl", rows(users=("ana",), count=13))
    ObjectStorage(logs).put("2024/ana.jsonl", log)
    assert run(config).built.turns == 13
    assert object_server.counts()[fetched] == 1


def test_a_log_without_a_named_column_is_refused_by_its_address(logs, tmp_path):
    with pytest.raises(LogFileError, match=f"{logs}/2024/deep/old.jsonl: no column"):
        run(config_of(tmp_path / "store", f"{logs}/2024/deep/old.jsonl"))
