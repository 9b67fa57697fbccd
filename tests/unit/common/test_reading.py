"""Files that somebody else made: read whole if they have an end, and refused in words if not."""

import os
import threading
import tracemalloc
from contextlib import suppress
from pathlib import Path

import pytest

from gapsl.common import reading
from gapsl.common.errors import InputError
from gapsl.common.plugins import load_plugin
from gapsl.common.reading import SMALL, read_bytes, read_end, read_given, read_text
from gapsl.data.partition import load_partition
from gapsl.run.config import make_config, read_yaml
from gapsl.run.folder import read_result


def huge(path, size):
    """A file of zeros that takes no room."""
    with path.open("wb") as file:
        file.truncate(size)
    return path


def test_a_file_is_read_whole_up_to_its_limit(tmp_path):
    path = tmp_path / "file"
    path.write_text("grün")
    assert read_text(path, limit=5) == "grün"
    with pytest.raises(OSError, match="it has more than 0 MiB"):
        read_bytes(path, limit=4)


def test_a_small_file_takes_little_memory(tmp_path):
    (tmp_path / "file").write_text("abc")
    tracemalloc.start()
    try:
        read_bytes(tmp_path / "file")
        assert tracemalloc.get_traced_memory()[1] < SMALL
    finally:
        tracemalloc.stop()


def test_a_pipe_is_read_as_long_as_somebody_writes(tmp_path):
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    writer = threading.Thread(target=lambda: pipe.write_bytes(b"rounds: 3\n" * 20_000))
    writer.start()
    assert read_given(pipe, SMALL) == b"rounds: 3\n" * 20_000  # more than a pipe holds
    writer.join()


def test_a_pipe_without_end_is_read_up_to_the_limit():
    reads, writes = os.pipe()

    def flood():
        with os.fdopen(writes, "wb", buffering=0) as file, suppress(BrokenPipeError):
            while True:
                file.write(b"x" * 65536)

    writer = threading.Thread(target=flood)
    writer.start()
    with pytest.raises(InputError, match="cannot be read: it has more than 1 MiB; give a file of settings"):
        read_yaml(Path(f"/dev/fd/{reads}"), read_given)
    os.close(reads)
    writer.join()


def test_a_pipe_that_nobody_writes_to_is_given_up(tmp_path, monkeypatch):
    monkeypatch.setattr(reading, "PIPE_SECONDS", 0.1)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="nobody writes to this pipe"):
        read_yaml(tmp_path / "pipe", read_given)


def test_a_file_of_gapsl_is_no_pipe(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    for read in (read_result, read_yaml):
        with pytest.raises(InputError, match="it is no file"):
            read(tmp_path / "pipe")
    with pytest.raises(OSError, match="it is no file"):
        read_end(tmp_path / "pipe", 10)


@pytest.mark.parametrize(
    ("path", "why"), [("/dev/zero", "no file"), ("/dev/null", "no file"), ("/", "Is a directory")]
)
def test_settings_are_read_from_nothing_else(path, why):
    with pytest.raises(InputError, match=f"{path} cannot be read: .*{why}.*; give a file of settings"):
        read_yaml(Path(path), read_given)


@pytest.mark.parametrize(
    ("read", "size"),
    [(read_yaml, SMALL), (load_plugin, SMALL), (read_result, reading.LARGE), (load_partition, reading.LARGE)],
)
def test_what_is_too_large_to_be_right_is_refused(read, size, tmp_path):
    path = huge(tmp_path / "file.py", size + 1)
    with pytest.raises(InputError, match=f"it has more than {size >> 20} MiB"):
        read(path if read is not load_plugin else str(path))


def test_a_message_shows_a_little_of_a_large_value(tmp_path):
    lists = ["- &a0 [x, x, x, x, x, x, x, x, x]"]
    lists += [f"- &a{i + 1} [{', '.join([f'*a{i}'] * 9)}]" for i in range(40)]  # 9 to the 41st
    path = tmp_path / "settings.yaml"
    path.write_text("rounds:\n" + "\n".join(lists))
    with pytest.raises(InputError, match="rounds: give a whole number") as refused:
        make_config(read_yaml(path))
    assert len(str(refused.value)) < 500


def test_the_end_of_a_log_is_its_last_lines(tmp_path):
    path = tmp_path / "log"
    path.write_text("first\nsecond\nthird\n")
    assert read_end(path, 13) == ["second", "third"]
    assert read_end(path, 1000) == ["first", "second", "third"]
