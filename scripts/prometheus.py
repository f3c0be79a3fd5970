#!/usr/bin/env python3
"""Do the metrics of `folio maps --openmetrics` and the dashboard work with a real Prometheus?

Writes this host's metrics repeatedly. node_exporter's textfile collector and, as OpenMetrics,
Prometheus itself read them. Then sends Prometheus every query of docs/dashboards/folio.json; each
must have an answer. One process has an odd name. Debian has no Grafana package, so the panels'
appearance is not tested.

Needs the packages prometheus and prometheus-node-exporter; without them it says so and ends. Exit
status: 0 every query has an answer (or nothing could be tested), 1 some has none.
"""

import argparse
import contextlib
import functools
import http.server
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
DASHBOARD = ROOT / "docs/dashboards/folio.json"
PROGRAMS = ["prometheus", "prometheus-node-exporter", "promtool"]
# A name with characters that a label must escape.
ODD_NAME = 'a"b\\c'
ODD = f"open('/proc/self/comm', 'w').write({ODD_NAME!r}); print('ready', flush=True); import time; time.sleep(1000)"
SECONDS = 90


def queries(dashboard):
    """Title and expression of every target, with Grafana's variables filled in."""
    found = []
    for panel in dashboard["panels"]:
        for target in panel["targets"]:
            expression = target["expr"].replace("$instance", ".*")
            if "$" in expression:
                raise ValueError(f"{panel['title']}: a variable is left in {expression}")
            found.append((panel["title"], expression))
    return found


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


class OpenMetrics(http.server.SimpleHTTPRequestHandler):
    """Serves the file as OpenMetrics: Prometheus selects its parser by the content type."""

    extensions_map = {".prom": "application/openmetrics-text; version=1.0.0; charset=utf-8"}

    def log_message(self, *_):
        pass


@contextlib.contextmanager
def running(command, log):
    process = subprocess.Popen([str(word) for word in command], stdout=log, stderr=log)
    try:
        yield process
    finally:
        process.terminate()
        process.wait()


def answer(port, query):
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=10) as reply:
            return json.load(reply)["data"]["result"]
    except urllib.error.HTTPError as error:
        raise ValueError(f"{query}: {json.load(error)['error']}") from None


def wait_for(port, query):
    """Waits for an answer to `query` and returns it."""
    end = time.monotonic() + SECONDS
    while time.monotonic() < end:
        with contextlib.suppress(OSError, ValueError):
            if found := answer(port, query):
                return found
        time.sleep(0.5)
    return []


def configuration(directory, exporter, direct):
    jobs = [("node", exporter, "/metrics"), ("direct", direct, "/folio.prom")]
    text = "global: {scrape_interval: 1s, scrape_timeout: 1s}\nscrape_configs:\n"
    for name, port, path in jobs:
        text += f"- {{job_name: {name}, metrics_path: {path}, static_configs: "
        text += f'[{{targets: ["127.0.0.1:{port}"]}}]}}\n'
    file = directory / "prometheus.yml"
    file.write_text(text)
    return file


def check(port, log):
    """Returns the faults as sentences."""
    faults = []
    for job in ["node", "direct"]:
        if not wait_for(port, f'folio_mapped_bytes{{job="{job}"}}'):
            return [f"no metrics through the job {job}; its log:\n{log.read_text()[-2000:]}"]
    errors = answer(port, "node_textfile_scrape_error")
    if [one["value"][1] for one in errors] != ["0"]:
        faults.append(f"node_exporter could not read the file: {errors}")
    names = {one["metric"]["process"] for one in answer(port, "folio_process_mapped_bytes")}
    if ODD_NAME not in names:
        faults.append(f"{ODD_NAME} is not among {sorted(names)}")
    sums = {one["metric"]["job"]: one["value"][1] for one in answer(port, "count by (job) (folio_mapped_bytes)")}
    if len(sums) != 2:
        faults.append(f"a parser has no series: {sums}")
    asked = queries(json.loads(DASHBOARD.read_text()))
    for title, query in asked:
        try:
            result = answer(port, query)
        except ValueError as error:
            faults.append(f"{title}: {error}")
            continue
        print(f"{len(result):4} series  {title}: {query}")
        if not result:
            faults.append(f"{title}: no answer to {query}")
    return faults


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--folio", type=Path, default=ROOT / "target/release/folio")
    folio = parser.parse_args().folio.resolve()
    missing = [name for name in PROGRAMS if not shutil.which(name)]
    if missing:
        print(f"SKIPPED: {', '.join(missing)} not found. Run: sudo apt-get install prometheus "
              "prometheus-node-exporter", file=sys.stderr)
        return 0
    with contextlib.ExitStack() as stack:
        directory = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        metrics, log = directory / "folio.prom", directory / "log"
        out = stack.enter_context(log.open("w"))
        odd = subprocess.Popen([sys.executable, "-c", ODD], stdout=subprocess.PIPE)
        stack.callback(odd.wait)
        stack.callback(odd.kill)
        odd.stdout.readline()
        writer = stack.enter_context(running(
            [folio, "maps", "--all", "--top=1000", "--watch=1", "--openmetrics", metrics], out))
        end = time.monotonic() + SECONDS
        while not metrics.exists():
            if writer.poll() is not None or time.monotonic() > end:
                print(f"folio wrote no metrics: {log.read_text()}")
                return 1
            time.sleep(0.1)
        subprocess.run(["promtool", "check", "metrics"], stdin=metrics.open(), check=True)
        exporter, port = free_port(), free_port()
        handler = functools.partial(OpenMetrics, directory=directory)
        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        stack.callback(server.shutdown)
        stack.enter_context(running(
            ["prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile",
             f"--collector.textfile.directory={directory}", f"--web.listen-address=127.0.0.1:{exporter}"],
            out))
        file = configuration(directory, exporter, server.server_address[1])
        stack.enter_context(running(
            ["prometheus", f"--config.file={file}", f"--storage.tsdb.path={directory}/data",
             f"--web.listen-address=127.0.0.1:{port}"], out))
        faults = check(port, log)
    print("\n".join(faults) if faults else "every query of the dashboard has an answer")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
