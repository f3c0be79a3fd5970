#!/usr/bin/env python3
"""Sweeps on common engines: workers without a shared disk, and Slurm jobs.

    cluster.py s3 --python PYTHON     three workers, each in a network and mount namespace of its own, with
                                      traces and results on a server that speaks S3
    cluster.py slurm --wheel FILE     jobs of Slurm in a Debian root, through dask-jobqueue

In both, three workers are lost one after another during the sweep, and every row must equal that of
a sweep on this host. Processes, mounts and networks are in separate namespaces, so nothing is left.
Needs root; for Slurm mmdebstrap. Without them, or without a wheel, prints a line that begins with
SKIPPED.
"""

import argparse
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import time
import urllib.error
import urllib.request

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "scripts"))
sys.dont_write_bytecode = True

import roots  # noqa: E402

WORK = ROOT / "target" / "cluster"
OF_S3 = ["moto[server]>=5", "s3fs>=2024.10"]
OF_SLURM = ["dask-jobqueue>=0.9"]
BRIDGE, HEAD, WORKER = "folio0", "10.77.0.1", "10.77.0.{}"
PORT_S3, PORT_SCHEDULER = 5000, 8786
NR_WORKERS = 3
SLURM = """ClusterName=folio
SlurmctldHost=head({head})
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
ReturnToService=2
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
NodeName=head NodeAddr={head} CPUs={nr_cpus} RealMemory=1500 State=UNKNOWN
PartitionName=main Nodes=head Default=YES MaxTime=INFINITE State=UP
"""
# Names resolve only if there is an address besides the loopback device's.
START_SLURM = """set -e
hostname head
ip link set lo up
ip link add {bridge} type bridge
ip addr add {head}/24 dev {bridge}
ip link set {bridge} up
mkdir -p /run/munge /var/spool/slurmctld /var/spool/slurmd /var/log/munge /var/lib/munge
chown munge:munge /run/munge /var/log/munge /var/lib/munge
runuser -u munge -- munged
slurmctld
slurmd -N head
cd /tmp && /opt/largefolio/bin/python sweep.py
"""
# Both clusters sweep these: enough cells to lose workers midway, few enough for a minute.
CELLS = """
import os, sys, time
import largefolio as lf

KERNELS = ["6.1", "6.12", "6.16", "6.17", "6.18", "6.19", "7.0", "7.1", "7.2", "7.2+readahead=1M"]
MACHINES = ["altra", "grace-4k", "ampereone", "milan", "zen4"]
SEEDS = [1, 2, 3, 4]
ASKED = dict(kernels=KERNELS, machines=MACHINES, seeds=SEEDS, fragmentation=500, memory="1G")
NR_CELLS = 200
PLACES = [50, 100, 150]

def rows(swept):
    assert not swept.failed, swept.failed
    table = swept.table().sort_by("cell")
    return table.drop_columns("trace").to_pylist()

def compare(swept, here, what):
    assert (swept.nr_asked, swept.nr_done) == (NR_CELLS, NR_CELLS), (swept.nr_asked, swept.nr_done)
    assert rows(swept) == rows(here), "other rows than on this host"
    print(f"{what}: {NR_CELLS} cells, every row as on this host; {3 - len(PLACES)} workers lost on the way")
"""
SWEEP_S3 = CELLS + """
from distributed import Client
import fsspec

trace, head, pids = sys.argv[1], sys.argv[2], sys.argv[3]
OPTIONS = {"endpoint_url": f"http://{head}:5000", "key": "folio", "secret": "folio"}
storage = fsspec.filesystem("s3", **OPTIONS)
storage.mkdir("bench")
storage.put_file(trace, "bench/mix.folio")
here = lf.sweep(trace, directory="here", **ASKED)
with Client(f"tcp://{head}:8786") as client:
    client.wait_for_workers(3, timeout=120)

    def lose(done, asked):
        if PLACES and done >= PLACES[0]:
            PLACES.pop(0)
            # Kill the oldest worker; its parent starts another.
            with open(pids) as file:
                os.kill(int(file.read().split()[0]), 9)
            time.sleep(2)

    swept = lf.sweep("s3://bench/mix.folio", client=client, directory="s3://bench/results",
                     storage_options=OPTIONS, progress=lose, **ASKED)
compare(swept, here, "S3, workers in namespaces of their own")
again = lf.sweep("s3://bench/mix.folio", directory="s3://bench/results", storage_options=OPTIONS, **ASKED)
assert (again.nr_found, again.nr_done) == (NR_CELLS, 0), (again.nr_found, again.nr_done)
print("S3: the same call finds them all there:", *sorted(storage.ls("bench/results")))
"""
SWEEP_SLURM = CELLS + """
import subprocess
from dask_jobqueue import SLURMCluster
from distributed import Client

def jobs():
    shown = subprocess.run(["squeue", "-h", "-t", "running", "-o", "%i"], stdout=subprocess.PIPE, text=True)
    return shown.stdout.split()

if __name__ == "__main__":
    here = lf.sweep("mix.folio", directory="here", **ASKED)
    with SLURMCluster(cores=1, memory="600MB", walltime="00:20:00", interface="folio0", python=sys.executable,
                      scheduler_options={"dashboard_address": None}, log_directory="/tmp/jobs") as cluster:
        with Client(cluster) as client:
            # Start lost jobs again.
            cluster.adapt(minimum_jobs=2, maximum_jobs=2, interval="2s")
            client.wait_for_workers(2, timeout=120)
            print(len(jobs()), "jobs of Slurm run")

            def lose(done, asked):
                if PLACES and done >= PLACES[0]:
                    PLACES.pop(0)
                    subprocess.run(["scancel", jobs()[0]], check=True)

            swept = lf.sweep("mix.folio", client=client, directory="there", progress=lose, **ASKED)
        compare(swept, here, "Slurm")
"""


class Unable(Exception):
    """Why this cannot run here, with the remedy."""


class Failed(Exception):
    """An unexpected failure."""


def say(words):
    print(f"cluster.py: {words}", file=sys.stderr, flush=True)


def packages_beside(python, wanted):
    """Returns a PYTHONPATH directory with packages that PYTHON lacks."""
    folder = WORK / "packages"
    made_of = folder / "made-of"
    if not made_of.exists() or made_of.read_text() != " ".join(wanted):
        shutil.rmtree(folder, ignore_errors=True)
        if subprocess.run([python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check",
                           "--target", folder, *wanted]).returncode:
            raise Unable(f"pip cannot install {' '.join(wanted)}")
        made_of.write_text(" ".join(wanted))
    return folder


def trace(folio, path):
    words = ["trace", "gen", "zipf", "--runs", "20000", "--seed", "7", "-o", path]
    subprocess.run([*folio, *words], check=True, stdout=subprocess.DEVNULL)


def folio_of(python):
    return [python, "-c", "from largefolio import _command; import sys; sys.exit(_command.main())"]


def s3(python):
    """Runs everything in separate namespaces, through this script."""
    if not shutil.which("ip"):
        raise Unable("ip is missing. Run: apt-get install iproute2")
    if python.is_relative_to("/tmp"):
        raise Unable(f"each worker has its own /tmp, without {python}. Put the environment elsewhere")
    folder = packages_beside(python, OF_S3)
    environment = {**os.environ, "PYTHONPATH": str(folder), "PYTHONDONTWRITEBYTECODE": "1"}
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        environment.pop(name, None)
    inside = [sys.executable, __file__, "inside", "--python", str(python)]
    words = ["unshare", "--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", *inside]
    subprocess.run(words, env=environment, check=True)


def ip(*words):
    subprocess.run(["ip", *words], check=True)


def wait_for(address, what):
    for _ in range(100):
        try:
            urllib.request.urlopen(address, timeout=1)
            return
        except OSError as why:
            if isinstance(why, urllib.error.HTTPError):
                return
            time.sleep(0.3)
    raise Failed(f"{what} does not answer at {address}")


class Workers:
    """Dask workers, each with its own network and /tmp, without this host's traces."""

    def __init__(self, python, folder):
        self.python, self.pids, self.running, self.nr_started = python, folder / "workers", [], 0

    def start(self):
        self.nr_started += 1
        nr = self.nr_started
        mounts = [f"mount -t tmpfs none {path}" for path in ("/tmp", "/dev/shm", ROOT / "traces", WORK / "run")]
        script = "\n".join([
            "set -e", "read _", *mounts, "ip link set lo up", "ip link set eth0 up",
            f"ip addr add {WORKER.format(10 + nr)}/24 dev eth0", "cd /tmp",
            f"exec {self.python} -m dask worker tcp://{HEAD}:{PORT_SCHEDULER} --nthreads 1 --no-dashboard "
            f"--no-nanny --death-timeout 60 --local-directory /tmp --host {WORKER.format(10 + nr)}"])
        child = subprocess.Popen(["unshare", "--net", "--mount", "sh", "-c", script], stdin=subprocess.PIPE,
                                 stderr=subprocess.DEVNULL)
        time.sleep(0.2)
        ip("link", "add", f"worker{nr}", "type", "veth", "peer", "name", "eth0", "netns", str(child.pid))
        ip("link", "set", f"worker{nr}", "master", BRIDGE, "up")
        child.stdin.write(b"\n")
        child.stdin.close()
        self.running.append(child)

    def keep(self):
        """Replaces lost workers, and records the running ones, oldest first."""
        self.running = [child for child in self.running if child.poll() is None]
        while len(self.running) < NR_WORKERS:
            self.start()
        self.pids.write_text(" ".join(str(child.pid) for child in self.running))


def inside(python):
    """Server, scheduler, workers and the sweep."""
    folder = WORK / "run"
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    subprocess.run(["mount", "--make-rprivate", "/"], check=True)
    ip("link", "set", "lo", "up")
    ip("link", "add", BRIDGE, "type", "bridge")
    ip("addr", "add", f"{HEAD}/24", "dev", BRIDGE)
    ip("link", "set", BRIDGE, "up")
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "cwd": folder}
    subprocess.Popen([python, "-m", "moto.server", "-H", HEAD, "-p", str(PORT_S3)], **quiet)
    subprocess.Popen([python, "-m", "dask", "scheduler", "--host", HEAD, "--port", str(PORT_SCHEDULER),
                      "--no-dashboard"], **quiet)
    wait_for(f"http://{HEAD}:{PORT_S3}/", "the server that speaks S3")
    trace(folio_of(python), folder / "mix.folio")
    workers = Workers(python, folder)
    workers.keep()
    (folder / "sweep.py").write_text(SWEEP_S3)
    sweep = subprocess.Popen([python, "sweep.py", folder / "mix.folio", HEAD, workers.pids], cwd=folder)
    while sweep.poll() is None:
        workers.keep()
        time.sleep(0.3)
    say(f"{workers.nr_started} workers were started")
    return sweep.returncode


def slurm(wheel):
    """Slurm, its daemons and jobs, in a root of Debian 12."""
    arch = next(arch for arch, machine in roots.MACHINES.items() if machine == os.uname().machine)
    root = roots.Root("bookworm", arch, "slurm")
    root.made(["ca-certificates", "iproute2", "munge", "python3", "python3-venv", "slurm-wlm"])
    for path in ("/etc/resolv.conf", "/etc/ssl/certs/ca-certificates.crt"):
        shutil.copy(path, root.path / path.lstrip("/"))
    (root.path / "etc/hosts").write_text(f"127.0.0.1 localhost\n{HEAD} head\n")
    (root.path / "etc/slurm").mkdir(exist_ok=True)
    (root.path / "etc/slurm/slurm.conf").write_text(SLURM.format(nr_cpus=os.cpu_count(), head=HEAD))
    shutil.rmtree(root.path / "opt/largefolio", ignore_errors=True)
    shutil.rmtree(root.path / "tmp", ignore_errors=True)
    (root.path / "tmp").mkdir(mode=0o1777)
    shutil.copy(wheel, root.path / "tmp")
    (root.path / "tmp/sweep.py").write_text(SWEEP_SLURM)
    for words in (["python3", "-m", "venv", "/opt/largefolio"],
                  ["/opt/largefolio/bin/pip", "install", "--quiet", f"/tmp/{wheel.name}[cluster]", *OF_SLURM],
                  ["/opt/largefolio/bin/folio", "trace", "gen", "zipf", "--runs", "20000", "--seed", "7",
                   "-o", "/tmp/mix.folio"]):
        if code := root.run(words, stdout=subprocess.DEVNULL).returncode:
            raise subprocess.CalledProcessError(code, words)
    return root.run(["unshare", "--uts", "sh", "-c", START_SLURM.format(head=HEAD, bridge=BRIDGE)],
                    has_network=False).returncode


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["s3", "slurm", "inside"])
    parser.add_argument("--python", type=pathlib.Path, help="Python with the package and its extra `cluster`")
    parser.add_argument("--wheel", type=pathlib.Path, help="a wheel for Debian 12")
    args = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        if os.geteuid():
            raise Unable("namespaces and roots need root. Run: sudo scripts/cluster.py ..")
        if args.what == "slurm":
            if args.wheel is None or not args.wheel.exists():
                raise Unable("no wheel found. Run: scripts/package.py wheel")
            return slurm(args.wheel.absolute())
        if args.python is None or not args.python.exists():
            raise Unable("no Python has the package. Run: scripts/python.sh wheel")
        # Do not resolve the path: a virtual environment is found by its link.
        return (inside if args.what == "inside" else s3)(args.python.absolute()) or 0
    except (Unable, roots.Unable) as why:
        print(f"SKIPPED: sweeps on {args.what}: {why}", file=sys.stderr)
    except (Failed, subprocess.CalledProcessError) as why:
        say(why)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
