"""Hosts on one machine: network namespaces on a bridge, whose links are as slow as one likes and lose no packets."""

import subprocess
import sys
from contextlib import contextmanager, suppress

NAMES = "planner-host"
BRIDGE = "planner-bridge"
PORT = 29571
PATIENCE = 600
"""Seconds after which a run that says nothing has hung."""


def ip(*words):
    subprocess.run(["ip", *map(str, words)], check=True, capture_output=True)


def host(number):
    return f"{NAMES}-{number}"


def _remove(count):
    for name in (BRIDGE, *map(host, range(count))):
        with suppress(subprocess.CalledProcessError):
            ip("netns", "del", name)


@contextmanager
def hosts(count, megabits=None):
    """As many namespaces, each with one way in and out of so many Mb/s (None: as fast as the machine copies)."""
    _remove(count)
    try:
        ip("netns", "add", BRIDGE)
        ip("-n", BRIDGE, "link", "add", "name", "bridge", "type", "bridge")
        ip("-n", BRIDGE, "link", "set", "bridge", "up")
        for number in range(count):
            _join(number, megabits)
        yield
    finally:
        _remove(count)


def _join(number, megabits):
    inside, outside = f"in-{number}", f"out-{number}"
    ip("netns", "add", host(number))
    ip("link", "add", inside, "netns", host(number), "type", "veth", "peer", "name", outside, "netns", BRIDGE)
    ip("-n", host(number), "addr", "add", f"10.79.0.{number + 1}/24", "dev", inside)
    ip("-n", host(number), "link", "set", inside, "up")
    ip("-n", host(number), "link", "set", "lo", "up")
    ip("-n", BRIDGE, "link", "set", outside, "master", "bridge")
    ip("-n", BRIDGE, "link", "set", outside, "up")
    if megabits:
        for namespace, device in ((host(number), inside), (BRIDGE, outside)):
            # A queue of seconds, so that nothing is dropped: what two directions send at once waits.
            subprocess.run(
                ["tc", "-n", namespace, "qdisc", "replace", "dev", device, "root", "tbf", "rate", f"{megabits}mbit",
                 "burst", "64kb", "latency", "5s"],
                check=True, capture_output=True,
            )  # fmt: skip


def torchrun(count, per_host, *arguments):
    """Run a module under torchrun on every host, each on a core of its own as far as they go round.

    What the first host printed on stderr, which is also what a failure shows.
    """
    started = [_start(number, count, per_host, arguments) for number in reversed(range(count))]
    try:
        *_, (_, errors) = [process.communicate(timeout=PATIENCE) for process in started]
    finally:
        for process in started:
            process.kill()
    assert all(process.returncode == 0 for process in started), errors[-2000:]
    return errors


def _start(number, count, per_host, arguments):
    environment = [f"GLOO_SOCKET_IFNAME=in-{number}", "OMP_NUM_THREADS=1"]
    command = [
        "ip", "netns", "exec", host(number), "env", *environment, "taskset", "-c", number % 2,
        sys.executable, "-m", "torch.distributed.run", "--nnodes", count, "--node-rank", number,
        "--nproc-per-node", per_host, "--master-addr", "10.79.0.1", "--master-port", PORT, "-m", *arguments,
    ]  # fmt: skip
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
