import json
import stat

from jobs import report
from tests.pipelines.logs import config_of, rows, run, write_jsonl
from tests.pipelines.reported import EVIL, invented_result


def test_a_build_and_an_evaluation_have_pages_of_one_file(tmp_path, job):
    run(config_of(tmp_path / "store", write_jsonl(tmp_path / "log.jsonl", rows())))
    (tmp_path / "r.json").write_text(json.dumps(invented_result()))
    for arguments in (("build", tmp_path / "store"), ("evaluation", tmp_path / "r.json")):
        out = tmp_path / "pages" / f"{arguments[0]}.html"
        code, said, _ = job(report, *arguments, "--out", out)
        assert (code, f"report {out}" in said.replace("\n", "")) == (0, True)
        text = out.read_text(encoding="utf-8")
        assert text.startswith("<!doctype html>") and EVIL not in text
        assert "default-src 'none'" in text and "http-equiv" in text
        assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_what_is_no_result_is_refused(tmp_path, job):
    path = tmp_path / "r.json"
    for content, said in (
        ("{}", "is no result of jobs.evaluate"),
        ("[", "cannot be read as JSON"),
        ("[]", "no object"),
    ):
        path.write_text(content)
        code, _, error = job(report, "evaluation", path, "--out", tmp_path / "r.html")
        assert code == 2 and str(path) in error and said in error
    assert not (tmp_path / "r.html").exists()
