"""What is read of a host from what its tools print.

Accelerators and NICs are known by their position in `HostTopology.gpus` and `.nics`; `Gpu.index` and `Nic.label` keep
the dump's own numbering. Bandwidths are of one direction.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from planner.quantities import BytesPerSecond

Pair = tuple[int, int]
"""Two positions; of two accelerators the lower first."""


@dataclass(frozen=True)
class Gpu:
    """An accelerator as a dump knows it. `links` is how many of its own links (NVLink, xGMI) were seen to work."""

    index: int
    name: str = ""
    bus_id: str = ""
    numa: int | None = None
    cpus: str = ""
    device_id: str = ""
    """PCI vendor and device: "10de:2330"."""
    links: int | None = None


@dataclass(frozen=True)
class Nic:
    """A network port. `name` is the driver's ("mlx5_0"), `label` the dump's ("NIC0")."""

    name: str
    label: str = ""
    speed: BytesPerSecond | None = None
    layer: str = ""
    """"infiniband", "ethernet", "efa", or empty where it is not told."""
    state: str = ""
    bus_id: str = ""
    numa: int | None = None
    gpu_direct: bool | None = None


@dataclass(frozen=True)
class PairLink:
    """What joins two accelerators.

    `kind` is the dump's word (NV18, NVL, XGMI, MX, PIX, PXB, PHB, NODE, SYS); `links` the number of direct links, 0
    where there is none and None where it is not told; `path` the way over PCIe where a dump tells both.
    """

    kind: str
    links: int | None = 0
    path: str = ""
    nccl_bandwidth: BytesPerSecond | None = None
    """Of all direct links together, as NCCL's search counts it (20 GB/s a link on A100)."""

    @property
    def direct(self) -> bool:
        """Whether the accelerators have a link of their own."""
        return self.links is None or self.links > 0


@dataclass(frozen=True)
class PciDevice:
    """A device of a PCIe tree. `parent` is the bus id above it, or empty below a root complex (`numa`)."""

    bus_id: str
    kind: str
    """"gpu", "nic", "switch", "nvswitch" or "other"."""
    parent: str = ""
    numa: int | None = None
    rate: float | None = None
    """Transfers per second and lane."""
    width: int | None = None
    bandwidth: BytesPerSecond | None = None
    device_id: str = ""
    virtual: bool = False
    """Whether a provider's file made it up (bus id ffff:...)."""


@dataclass(frozen=True)
class Cpu:
    """The processor of a host, as the kernel names it: vendor, family and model."""

    arch: str = ""
    vendor: str = ""
    family: int | None = None
    model: int | None = None


@dataclass(frozen=True)
class HostTopology:
    """One host: its accelerators, its NICs, and what lies between them. `source` says what printed it."""

    source: str
    gpus: tuple[Gpu, ...]
    nics: tuple[Nic, ...] = ()
    pairs: Mapping[Pair, PairLink] = field(default_factory=dict)
    nic_pairs: Mapping[Pair, str] = field(default_factory=dict)
    """(accelerator, NIC) -> how near: PIX, PXB, PHB, NODE or SYS."""
    pcie: tuple[PciDevice, ...] = ()
    switched: bool | None = None
    """Whether links go to a switch (NVSwitch); None where the dump does not tell."""
    peer_access: Mapping[Pair, str] = field(default_factory=dict)
    """The driver's word on peer access: OK, NS, CNS, GNS, TNS, DR, U."""
    cpu: Cpu = Cpu()
    from_machine: bool = True
    """False for a provider's file, which states what NCCL should believe."""
    links_told: bool = True
    """Whether the dump tells which accelerators have links of their own: a provider's file often leaves them out."""
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class LinkStatus:
    """The links of one accelerator: the rate that each runs at as the driver prints it, None where it is inactive."""

    index: int
    name: str
    rates: tuple[BytesPerSecond | None, ...]

    @property
    def active(self) -> int:
        """How many links work."""
        return sum(rate is not None for rate in self.rates)


@dataclass(frozen=True)
class PortStatus:
    """A port of a network adapter, as ibstat or ibv_devinfo print it; what is not printed is empty or None."""

    device: str
    port: int | None
    state: str = ""
    """Lower case: "active", "initializing", "down", ..."""
    physical: str = ""
    speed: BytesPerSecond | None = None
    layer: str = ""
    transport: str = ""
    adapter: str = ""
    mtu: int | None = None
    """In use, in bytes."""


@dataclass(frozen=True)
class Gid:
    """An address of an RDMA port. `version` is "v1" or "v2" of RoCE; `ipv4` is empty for link-local addresses."""

    device: str
    port: int
    index: int
    gid: str
    ipv4: str
    version: str
    interface: str


@dataclass(frozen=True)
class GraphPattern:
    """A set of channels that NCCL's search found; bandwidths are of one channel."""

    pattern: str
    channels: int
    intra: BytesPerSecond
    inter: BytesPerSecond
    intra_type: str
    inter_type: str


@dataclass(frozen=True)
class AlgorithmChoice:
    """What NCCL chose for a collective of a size."""

    collective: str
    size: int
    algorithm: str
    protocol: str


@dataclass(frozen=True)
class TuningEntry:
    """A row of NCCL's tuning table: latency in seconds and algorithm bandwidth."""

    collective: str
    algorithm: str
    protocol: str
    latency: float
    bandwidth: BytesPerSecond


@dataclass(frozen=True)
class NcclLog:
    """What NCCL_DEBUG=INFO tells of a job."""

    version: str = ""
    hosts: tuple[str, ...] = ()
    ranks: int | None = None
    nodes: int | None = None
    network: str = ""
    """"IB", "Socket" or a plugin's name, from `Using network`."""
    devices: tuple[str, ...] = ()
    """Adapters in use: "mlx5_0:1/RoCE"."""
    gpu_direct: Mapping[str, bool] = field(default_factory=dict)
    settings: Mapping[str, str] = field(default_factory=dict)
    """Environment variables that NCCL says it follows."""
    transports: Mapping[str, int] = field(default_factory=dict)
    """Transport ("P2P", "SHM", "NET/IB/0/GDRDMA") -> how many channels go over it."""
    rings: tuple[tuple[int, ...], ...] = ()
    patterns: tuple[GraphPattern, ...] = ()
    choices: tuple[AlgorithmChoice, ...] = ()
    tuning: tuple[TuningEntry, ...] = ()
    nvls: bool | None = None
    """Whether multicast of the switch is available."""


@dataclass(frozen=True)
class Sample:
    """A row of an nccl-tests table; in-place figures are None where they are not printed."""

    size: int
    time: float
    """Seconds."""
    algbw: BytesPerSecond
    busbw: BytesPerSecond
    wrong: float | None = None
    in_place_time: float | None = None
    in_place_algbw: BytesPerSecond | None = None
    in_place_busbw: BytesPerSecond | None = None
    in_place_wrong: float | None = None


@dataclass(frozen=True)
class CollectiveTable:
    """One table of nccl-tests or rccl-tests. `notes` say what was inferred or corrected, and why."""

    collective: str
    ranks: int | None
    samples: tuple[Sample, ...]
    nodes: int | None = None
    gpu: str = ""
    dtype: str = ""
    version: str = ""
    """Of the NCCL library."""
    line: int = 0
    """Where the table begins in its file."""
    notes: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    """Where each rank's device is listed, the hosts."""


@dataclass(frozen=True)
class Dump:
    """All that one file holds, whatever it is a mixture of."""

    path: str
    formats: tuple[str, ...]
    topology: HostTopology | None = None
    further: tuple[HostTopology, ...] = ()
    """Other hosts of the same format in the file."""
    link_status: tuple[LinkStatus, ...] = ()
    ports: tuple[PortStatus, ...] = ()
    gids: tuple[Gid, ...] = ()
    nccl: NcclLog | None = None
    tables: tuple[CollectiveTable, ...] = ()
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class Finding:
    """One thing that looks wrong: `what`, `why` it matters or how it is known, and the `command` to run next.

    `kind` is one word for it, the same whatever the figures: "links", "link_rate", "port", "port_rate", "gid",
    "sockets", "ib_disable", "gpu_direct", "far_nic", "software_rdma", "pcie", "peer_access", "results".
    """

    what: str
    why: str
    command: str
    kind: str
