"""The page's server: what it answers, whom it refuses, and that it only reads."""

from __future__ import annotations

import http.client
import json
import socket
from contextlib import ExitStack
from pathlib import Path

import pytest
from long_runs import lines, made_run
from pages import answer, ask, request, served, until_read
from processes import contents, wait_until

from gapsl.common.errors import InputError, Unavailable
from gapsl.dashboard import launch
from gapsl.dashboard.launch import address_of, check_extra, guard, listen

pytest.importorskip("starlette", reason="the extra dashboard is not installed")
FIXTURES = Path(__file__).parents[1] / "fixtures"


def test_a_run_is_answered_and_nothing_in_its_folder_changes(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=30, devices=6)
    before = contents(run)
    with served(run) as address:
        until_read(address, 30)
        (found,) = answer(address, "api/overview")["runs"]
        assert (found["round"], found["total"], found["state"]) == (30, 30, "stopped")
        curves = answer(address, "api/runs/0/curves")
        assert len(curves["rounds"]["loss"]) == 30
        assert curves["evaluations"]["device_mean"][-1] == 1
        closer = answer(address, "api/runs/0/curves?axis=epoch&low=1&high=2")
        assert closer["rounds"]["round"] == list(range(10, 21))
        devices = answer(address, "api/runs/0/devices")
        assert devices["state"] == ["leader", "leader", "kept", "excluded", "excluded", "excluded"]
        assert devices["kept"][0] == 30 and devices["labels"] is None and devices["unlabelled"]
        angles = answer(address, "api/runs/0/angles?round=12")
        assert angles["round"] == 12
        assert sorted(angles["orders"]["run"][:3]) in ([0, 2, 4], [1, 3, 5])
        assert answer(address, "api/runs/0/fleet") == {"served": False}
        assert answer(address, "api/runs/0/about")["settings"]["devices"] == 6
    assert contents(run) == before


def test_a_comparison_is_answered_with_bands_and_differences(tmp_path: Path) -> None:
    with served(FIXTURES / "comparison") as address:
        wait_until(lambda: len(answer(address, "api/compare")["finished"]) == 2, "both runs on the page")
        found = answer(address, "api/compare")
    assert [group["label"] for group in found["groups"]] == ["PSL", "SFL"]
    assert found["groups"][0]["colour"] == "#E69F00", "as in the pictures"
    assert found["finished"] == ["PSL", "SFL"]
    assert found["differences"][0][0] is None and found["differences"][1][0]["pairs"] == 1


def test_a_fleet_is_answered(tmp_path: Path) -> None:
    with served(FIXTURES / "network") as address:
        until_read(address, 1)
        found = answer(address, "api/runs/0/fleet")
    assert found["served"]
    assert found["connected"] is None and "does not run" in found["unknown"]
    assert len(found["throughput"]) == len(found["names"])


def test_a_run_without_records_and_one_that_is_not_there_yet_are_waited_for(tmp_path: Path) -> None:
    with served(tmp_path / "later", expected=True) as address:
        assert answer(address, "api/overview")["runs"] == []
        run = made_run(tmp_path / "later", rounds=3, devices=2)
        until_read(address, 3)
        (run / "records.jsonl").unlink()
        assert ask(address, "api/runs/0/angles")[0] == 200
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.yaml").write_text("method: psl\nseed: 0\ndevices: 2\n")
    with served(tmp_path / "empty") as address:
        assert answer(address, "api/overview")["runs"][0]["round"] == 0
        for what in ("curves", "devices", "angles", "fleet", "about"):
            assert ask(address, f"api/runs/0/{what}")[0] == 200, what


def test_news_come_when_records_do_and_again_to_who_comes_back(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=20, devices=2)
    whole = list(lines(40, 2, 10))
    with served(run) as address:
        until_read(address, 20)

        def news() -> http.client.HTTPResponse:
            link = http.client.HTTPConnection(address.removeprefix("http://").rstrip("/"), timeout=60)
            link.request("GET", "/events")
            found = link.getresponse()
            assert found.headers["Content-Type"].startswith("text/event-stream")
            assert found.readline() == b"retry: 1000\n"
            return found

        def next_event(link: http.client.HTTPResponse) -> list[int]:
            while not (line := link.readline()).startswith(b"data: "):
                assert line, "the stream has ended"
            return list(json.loads(line.removeprefix(b"data: ")))

        first = news()
        before = next_event(first)
        with (run / "records.jsonl").open("a") as file:
            file.write("".join(whole[20:22]) + whole[22][:50])  # and a record that is not finished
        assert next_event(first) > before
        until_read(address, 22)
        assert next_event(news()), "who comes back is told at once"
        (run / "records.jsonl").write_text("".join(whole[:10]))  # a resume went back
        wait_until(
            lambda: answer(address, "api/overview")["runs"][0]["round"] == 10, "the page to go back, too"
        )
        assert next_event(first)


def test_only_who_reads_and_calls_this_machine_is_answered(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=2, devices=2)
    with served(run) as address:
        port = address.rstrip("/").rpartition(":")[2]
        for host in ("evil.example", f"evil.example:{port}", "localhost.evil.example", "", "[", "a b"):
            assert ask(address, Host=host)[0] == 421, host
        for host in (f"127.0.0.1:{port}", "[::1]", "LOCALHOST", f"localhost:{port}"):
            assert ask(address, Host=host)[0] == 200, host
        for method in ("POST", "PUT", "DELETE", "OPTIONS"):
            assert request(method, address)[0] == 405
        status, headers, _ = ask(address)
        assert status == 200
        assert "default-src 'none'" in headers["content-security-policy"]
        assert headers["x-content-type-options"] == "nosniff"
        for path in (
            "api/runs/7/curves", "api/runs/-1/curves", "api/runs/0/config", "api/runs/x/about", "nothing",
            "static/../server.py", "static/%2e%2e/server.py", "static//etc/passwd", "static/",
            f"api/runs/{'9' * 5000}/curves", "static/%00", f"static/{'a' * 5000}",
        ):  # fmt: skip
            assert ask(address, path)[0] in (404, 405), path
        for path in (
            "curves?axis=loss",
            "curves?low=x",
            "curves?low=nan",
            "curves?low=2&high=1",
            "angles?round=1.5",
            f"angles?round={10**30}",
            f"angles?round=-{10**30}",
        ):
            assert ask(address, f"api/runs/0/{path}")[0] == 400, path


def test_a_token_is_asked_for_once_and_then_known_by_a_cookie(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=2, devices=2)
    with served(run, token="a secret") as address:
        for path in (
            "",
            "api/overview",
            "events",
            "static/main.js",
            "?token=",
            "?token=a",
            "api/overview?token=x",
        ):
            status, _, content = ask(address, path)
            assert status == 401, path
            assert b"a secret" not in content
        status, headers, _ = ask(address, "?token=a%20secret")
        assert (status, headers["location"]) == (303, "/")
        assert "HttpOnly" in headers["set-cookie"] and "SameSite=strict" in headers["set-cookie"]
        cookie = headers["set-cookie"].partition(";")[0]
        assert ask(address, "api/overview", Cookie=cookie)[0] == 200
        assert ask(address, "api/overview", Cookie=cookie + "x")[0] == 401
        assert ask(address, "api/overview", Cookie="\xff;;=")[0] == 401
        for other in (
            'a={"x": "y z"}',
            "a[0]=1",
            "a",
            "=",
            "expires=Thu, 01 Jan",
            '"',
        ):  # of other pages here
            for header in (f"{other}; {cookie}", f"{cookie}; {other}"):
                assert ask(address, "api/overview", Cookie=header)[0] == 200, header
        _, headers, _ = ask(address, "/evil.example?token=a%20secret")
        assert headers["location"] == "/evil.example", "to this machine, and nowhere else"


def test_who_says_nothing_does_not_keep_others_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "PATIENCE", 0.5)
    run = made_run(tmp_path / "a", rounds=2, devices=2)
    with served(run) as address, ExitStack() as held:
        port = int(address.rstrip("/").rpartition(":")[2])
        for _ in range(launch.CONNECTIONS + 10):
            silent = held.enter_context(socket.create_connection(("localhost", port)))
            silent.sendall(b"GET / HT")  # the rest never comes
        wait_until(lambda: ask(address)[0] == 200, "an answer")


def test_settings_that_were_damaged_meanwhile_are_said(tmp_path: Path) -> None:
    run = made_run(tmp_path / "a", rounds=2, devices=2)
    with served(run) as address:
        until_read(address, 2)
        for text in ("a: [", "", "- 1", "devices: 2"):
            (run / "config.yaml").write_text(text)
            status, _, content = ask(address, "api/runs/0/about")
            assert status == 503 and b"config.yaml" in content, text


def test_beyond_this_machine_there_is_always_a_token() -> None:
    with listen("localhost", 0) as opened:
        assert guard(opened, None) is None
        assert guard(opened, "mine") == "mine"
        with pytest.raises(InputError, match="leave it out"):
            guard(opened, " ")
    with listen("0.0.0.0", 0) as opened:
        made = guard(opened, None)
        assert made is not None and len(made) > 16
        assert address_of(opened, "0.0.0.0", made).endswith(f"/?token={made}")


def test_ports_and_hosts_that_cannot_be_used_are_refused_with_the_fix() -> None:
    with (
        listen("localhost", 0) as taken,
        pytest.raises(Unavailable, match="in use; choose another with --port"),
    ):
        listen("localhost", taken.getsockname()[1])
    with pytest.raises(InputError, match="give a name or an address of this machine"):
        listen("no.such.host.invalid", 0)
    with pytest.raises(InputError, match="choose another --host"):
        listen("192.0.2.1", 0)


def test_the_usual_port_gives_way_where_it_is_taken() -> None:
    with listen() as first, listen() as second:
        assert first.getsockname()[1] != second.getsockname()[1]


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(launch, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"pip install 'gapsl\[dashboard\]'"):
        check_extra()
