"""What was verified is not read again before somebody writes it."""

import os
from functools import partial

import pytest

from pipelines.files import file_sha256
from pipelines.verified_files import SETTLED_SECONDS, VerifiedFiles


class Reader:
    """Compares a file with what it held at first, and counts how often it reads it."""

    def __init__(self, path):
        self.path, self.read = path, 0
        self.listed = {"sha256": file_sha256(path)}

    def compare(self, contents, then=lambda: None):
        if contents:
            self.read += 1
            then()
            if file_sha256(self.path) != self.listed["sha256"]:
                raise ValueError("damaged")

    def check(self, verified, **given):
        verified.check(self.path, self.listed, partial(self.compare, **given))
        return self.read


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    return path


def later(file, seconds=60):
    return lambda: file.stat().st_ctime + seconds


def test_a_file_is_read_once(file):
    verified, reader = VerifiedFiles(later(file)), Reader(file)
    assert [reader.check(verified) for _ in range(3)] == [1, 1, 1]


def rewritten(path):
    path.write_bytes(b"CONTENT")


def rewritten_with_its_time(path):
    about = path.stat()
    path.write_bytes(b"CONTENT")
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))


def replaced(path):
    other = path.with_name("other")
    other.write_bytes(b"CONTENT")
    other.replace(path)


def cut(path):
    os.truncate(path, 3)


@pytest.mark.parametrize("damage", [rewritten, rewritten_with_its_time, replaced, cut])
def test_a_file_that_was_written_since_is_read_again(file, damage):
    # The clock is far ahead, so that it is time alone by which a write is told from none.
    verified, reader = VerifiedFiles(lambda: file.stat().st_ctime + 60), Reader(file)
    reader.check(verified)
    before = file.stat().st_ctime_ns
    while not file.exists() or file.stat().st_ctime_ns == before:
        damage(file)
    with pytest.raises(ValueError, match="damaged"):
        reader.check(verified)
    with pytest.raises(ValueError, match="damaged"):  # nor is it believed the next time
        reader.check(verified)


def test_a_file_that_was_written_a_moment_ago_is_read_again_for_it_may_be_written_unnoticed(file):
    reader = Reader(file)
    now = VerifiedFiles(later(file, SETTLED_SECONDS / 2))
    assert [reader.check(now) for _ in range(2)] == [1, 2]


def test_a_file_that_is_written_while_it_is_read_is_not_believed(file):
    verified, reader = VerifiedFiles(later(file)), Reader(file)

    def touched():
        before = file.stat().st_ctime_ns
        while file.stat().st_ctime_ns == before:
            os.utime(file)

    assert reader.check(verified, then=touched) == 1
    assert reader.check(verified) == 2


def test_what_was_found_to_be_as_one_manifest_says_is_compared_with_another(file):
    verified, reader = VerifiedFiles(later(file)), Reader(file)
    reader.check(verified)
    reader.listed = {"sha256": "0" * 64}
    with pytest.raises(ValueError, match="damaged"):
        reader.check(verified)


def test_files_that_were_removed_are_forgotten(file):
    verified, reader = VerifiedFiles(later(file)), Reader(file)
    reader.check(verified)
    verified.forget_removed()
    assert (reader.check(verified), len(verified)) == (1, 1)
    file.unlink()
    verified.forget_removed()
    assert len(verified) == 0
