"""Metrics as Prometheus sees them: scraped over HTTP, and read by its own parser."""

import math
import socket
import sys
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator

import pytest
from prometheus_client.parser import text_string_to_metric_families

from streamsvm.errors import ConfigError, SourceError
from streamsvm.exposition import METRICS, PREFIX, Exposition

Figures = dict[str, float | None]
Serve = Callable[[Callable[[], Figures]], Exposition]


@pytest.fixture
def serve() -> Iterator[Serve]:
    servers: list[Exposition] = []

    def serve(read: Callable[[], Figures]) -> Exposition:
        servers.append(Exposition(0, read))
        servers[-1].start()
        return servers[-1]

    yield serve
    for server in servers:
        server.close()


def text_of(port: int) -> str:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
        return str(answer.read().decode())


def scraped(port: int) -> dict[str, tuple[str, str, float]]:
    """Type, help and value by the name of each sample."""
    return {
        sample.name: (family.type, family.documentation, sample.value)
        for family in text_string_to_metric_families(text_of(port))
        for sample in family.samples
    }


def test_every_metric_is_served_with_its_type_and_its_meaning(serve: Serve) -> None:
    names = list(METRICS)
    server = serve(lambda: {name: float(place) for place, name in enumerate(names)})
    found = scraped(server.port)
    assert found == {name: (*METRICS[name], float(place)) for place, name in enumerate(names)}
    assert all(name.endswith("_total") == (kind == "counter") for name, (kind, _) in METRICS.items())


def test_figures_are_asked_for_at_every_scrape_and_none_is_left_out(serve: Serve) -> None:
    figures: Figures = {"rows_total": 10, "loss": None, "auc": 0.75, "drifting": True, "rows": 7, "error": math.nan}
    server = serve(lambda: figures)
    found = {name: value for name, (_, _, value) in scraped(server.port).items()}
    assert math.isnan(found.pop(PREFIX + "error"))
    assert found == {PREFIX + "rows_total": 10.0, PREFIX + "auc": 0.75, PREFIX + "drifting": 1.0}
    figures |= {"rows_total": 12, "loss": 0.5, "auc": None, "error": None}
    found = {name: value for name, (_, _, value) in scraped(server.port).items()}
    assert found == {PREFIX + "rows_total": 12.0, PREFIX + "loss": 0.5, PREFIX + "drifting": 1.0}


def test_nothing_but_our_own_metrics_is_served(serve: Serve) -> None:
    server, other = serve(lambda: {"up": 1.0}), serve(lambda: {"up": 0.0})
    assert list(scraped(server.port)) == [PREFIX + "up"]
    assert scraped(other.port)[PREFIX + "up"][2] == 0.0 != scraped(server.port)[PREFIX + "up"][2]


def test_a_run_that_cannot_say_is_down(serve: Serve, capfd: pytest.CaptureFixture[str]) -> None:
    def read() -> Figures:
        raise RuntimeError("in the middle of something")

    assert {name: value for name, (_, _, value) in scraped(serve(read).port).items()} == {PREFIX + "up": 0.0}
    assert capfd.readouterr().err == ""


def test_it_listens_on_this_machine_only(serve: Serve) -> None:
    server = serve(lambda: {"up": 1.0})
    assert server._server.server_address[0] == "127.0.0.1"


def test_a_port_in_use_is_one_clear_line() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        server = Exposition(port, dict)
        with pytest.raises(SourceError, match=f"^port {port} of 127.0.0.1 is taken: choose another one, or 0") as error:
            server.start()
        assert "\n" not in str(error.value)
        server.close()


def test_a_port_that_is_none_is_one_clear_line() -> None:
    with pytest.raises(SourceError, match=r"^port 70000 of 127.0.0.1 cannot be had: "):
        Exposition(70000, dict).start()


def test_a_missing_package_names_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    with pytest.raises(ConfigError, match=r"pip install 'streamsvm\[metrics\]'"):
        Exposition(0, dict).start()


def test_closing_leaves_no_thread_and_no_port_behind() -> None:
    with Exposition(0, lambda: {"up": 1.0}) as server:
        port = server.port
        assert port > 0 and text_of(port)
        assert "streamsvm-metrics" in [thread.name for thread in threading.enumerate()]
    server.close()
    assert "streamsvm-metrics" not in [thread.name for thread in threading.enumerate()]
    with pytest.raises(urllib.error.URLError):
        text_of(port)
    with Exposition(port, lambda: {"up": 1.0}) as again:
        assert again.port == port and PREFIX + "up" in scraped(port)
