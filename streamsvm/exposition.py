"""Figures of a run that never stops, for Prometheus to scrape: http://127.0.0.1:PORT/metrics.

METRICS says what there is. Nothing is counted here: at every scrape the run is asked for its figures, by a thread of
the server, so what answers must be safe to call from there. A figure that is None is left out. The server listens on
this machine only: figures tell a lot about data, and whoever wants them elsewhere puts a proxy with a lock before it.
"""

import errno
import threading
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from streamsvm.errors import ConfigError, SourceError

if TYPE_CHECKING:
    from prometheus_client.core import Metric

ADDRESS = "127.0.0.1"
PREFIX = "streamsvm_"

# What is scraped: its type, and what it means. A counter only grows while a run goes on.
METRICS: dict[str, tuple[str, str]] = {
    "streamsvm_rows_total": ("counter", "Rows learned from"),
    "streamsvm_bytes_total": ("counter", "Bytes read"),
    "streamsvm_lag_bytes": ("gauge", "Bytes written to the files that are followed but not learned from yet"),
    "streamsvm_loss": ("gauge", "Mean loss of the rows of the window, each before it was learned from"),
    "streamsvm_error": ("gauge", "Share of the rows of the window that were given another class, from 0 to 1"),
    "streamsvm_auc": ("gauge", "Area under the ROC curve of scored rows of the window, two classes"),
    "streamsvm_log_loss": ("gauge", "Mean log loss of the probabilities of scored rows of the window"),
    "streamsvm_calibration_error": ("gauge", "Expected calibration error of these probabilities"),
    "streamsvm_drifting": ("gauge", "1 while the loss is above the band of what is usual, else 0"),
    "streamsvm_skipped_rows_total": ("counter", "Malformed rows that were skipped"),
    "streamsvm_truncations_total": ("counter", "Times that a file became shorter than what was read of it"),
    "streamsvm_lost_files_total": ("counter", "Files that vanished before they were read to their end"),
    "streamsvm_read_errors_total": ("counter", "Reads that failed and were tried again"),
    "streamsvm_files": ("gauge", "Files that were begun, those before a restart included"),
    "streamsvm_checkpoint_age_seconds": ("gauge", "Seconds since the last checkpoint was written"),
    "streamsvm_model_age_seconds": ("gauge", "Seconds since the last model was written"),
    "streamsvm_last_row_age_seconds": ("gauge", "Seconds since the last row was learned from"),
    "streamsvm_up": ("gauge", "1 while the run learns, 0 where it cannot say"),
}

Read = Callable[[], dict[str, float | None]]


class Exposition:
    """A server of metrics. `read` gives figures by the names of METRICS, with or without the prefix; others are left
    out. With port 0 any free one is taken: `port` is the one that was."""

    def __init__(self, port: int, read: Read) -> None:
        self.port = port
        self._read = read
        self._server: Any = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        try:
            from prometheus_client import CollectorRegistry, start_http_server
        except ImportError as error:
            raise ConfigError("metrics need the package prometheus_client: pip install 'streamsvm[metrics]'") from error
        registry = CollectorRegistry()
        registry.register(self)
        try:
            self._server, self._thread = start_http_server(self.port, addr=ADDRESS, registry=registry)
        except (OSError, OverflowError) as error:
            raise SourceError(self._refusal(error)) from error
        self._thread.name = "streamsvm-metrics"
        self.port = self._server.server_port

    def close(self) -> None:
        """Stop; twice is once."""
        if self._server is None or self._thread is None:
            return
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
        self._server = self._thread = None

    def __enter__(self) -> "Exposition":
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def collect(self) -> "Iterator[Metric]":
        """What prometheus_client asks for at a scrape."""
        from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily

        try:
            figures = self._read()
        except Exception:  # whoever watches is told, and the run goes on
            figures = {"up": 0.0}
        values = {PREFIX + name.removeprefix(PREFIX): value for name, value in figures.items()}
        for name, (kind, text) in METRICS.items():
            value = values.get(name)
            if value is not None:
                family = CounterMetricFamily if kind == "counter" else GaugeMetricFamily
                yield family(name, text, value=float(value))

    def _refusal(self, error: Exception) -> str:
        if isinstance(error, OSError) and error.errno == errno.EADDRINUSE:
            return f"port {self.port} of {ADDRESS} is taken: choose another one, or 0 for any that is free"
        return f"port {self.port} of {ADDRESS} cannot be had: {error}"
