import pytest

from hgmem_core.config import Config, config_digest, parse_config, to_toml
from hgmem_core.section import ConfigError

INPUT = '[[inputs]]\nformat = "jsonl"\npaths = ["a.jsonl"]\nnamespace = "acme/{user}"\n'


def test_defaults_and_overrides():
    config = parse_config("[store]\nbuckets = 4", ["retrieve.k=5", "store.root=/data/x", "encoder.name=static"])
    assert (config.store.buckets, config.retrieve.k, config.store.root) == (4, 5, "/data/x")
    assert config.encoder.name == "static"


def test_the_last_override_wins_and_reaches_into_lists():
    config = parse_config(INPUT, ["inputs.0.columns.text=body", "retrieve.k=3", "retrieve.k=4"])
    assert config.inputs[0].columns.text == "body"
    assert config.retrieve.k == 4


@pytest.mark.parametrize(
    ("text", "overrides", "message"),
    [
        ("[store]\nbukets = 4", [], r"^store\.bukets: unknown key"),
        ("[store]\nbuckets = '4'", [], r"^store\.buckets: .*integer"),
        ("[store]\nbuckets = -1", [], r"^store\.buckets: .*greater than or equal to 0 \(got -1\)"),
        ("[retrieve]\nk = 3.5", [], r"^retrieve\.k: "),
        ("[encoder]\nname = 'bert'", [], r"^encoder\.name: .*'minilm', 'static'"),
        (INPUT + "time_zone = 'Mars/Base'", [], r"^inputs\.0\.time_zone: 'Mars/Base' is not an IANA time zone"),
        ("[[inputs]]\nformat = 'jsonl'\npaths = []", [], r"^inputs\.0\.paths: "),
        ("[[inputs]]\nformat = 'csv'\npaths = ['a']", [], r"^inputs\.0: namespace is missing"),
        ("[propagate]\nweight = 0.0", [], r"^propagate\.weight: .*greater than 0"),
        ("[skills.evolution]\nprune_below = 1.5", [], r"^skills\.evolution\.prune_below: .*less than or equal to 1"),
        ("", ["retrieve.k"], "an override is written a.b=value"),
        ("", ["nowhere.k=1"], r"^nowhere: unknown key"),
        ("", ["store.root.deep=1"], r"store\.root"),
        (INPUT, ["inputs.3.format=csv"], r"inputs\.3\.format: 3 is not one of the 1 elements"),
        ("store = [", [], "not TOML"),
    ],
)
def test_faults_name_their_dotted_path(text, overrides, message):
    with pytest.raises(ConfigError, match=message):
        parse_config(text, overrides)


def test_every_fault_is_reported_at_once():
    with pytest.raises(ConfigError) as caught:
        parse_config("[store]\nbuckets = -1\n[retrieve]\nk = 0\nz = 1")
    assert {line.partition(":")[0] for line in str(caught.value).splitlines()} == {
        "store.buckets",
        "retrieve.k",
        "retrieve.z",
    }


def test_the_printed_configuration_reads_back_to_the_same_tree():
    config = parse_config(INPUT, ['inputs.0.namespace="a/{user \\"x\\"}\\n\\u007f"', "store.buckets=3"])
    assert parse_config(to_toml(config)) == config
    assert parse_config(to_toml(Config())) == Config()


def test_a_digest_follows_the_values():
    assert config_digest(parse_config("").index) == config_digest(Config().index)
    assert config_digest(parse_config("", ["index.k1=1.2"]).index) != config_digest(Config().index)


def test_the_tree_is_frozen():
    with pytest.raises(ValueError, match="frozen"):
        Config().store.buckets = 3
