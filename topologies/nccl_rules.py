"""NCCL's rules for reading a topology file: which kind of link an attribute stands for, and numbers within bounds.

Facts of NCCL 2.30's topology code (and RCCL's for xgmi), restated; the figures themselves stand in the link profiles.
"""

import re

from netsim.errors import FabricError
from topologies.nccl_elements import Element

_SPEED = re.compile(r"\s*(\d{1,4}(?:\.\d{1,3})?)\s*GT/s.*")
_GENERATIONS = {2.5: 1, 5.0: 2, 8.0: 3, 16.0: 4, 32.0: 5, 64.0: 6}
_INTEL_MODELS = ((0xCF, "emerald_rapids"), (0x8F, "sapphire_rapids"), (0x55, "skylake"), (0, "broadwell"))
_NVLINK_OF_SM = ((100, "nvlink5"), (90, "nvlink4"), (80, "nvlink3"), (70, "nvlink2"), (60, "nvlink1"))
_ZHAOXIN_VENDORS = ("CentaurHauls", "  Shanghai  ")
_YONGFENG = (7, 0x5B)
_BUS_DIGITS = re.compile(r"[0-9a-fA-F:.]*[0-9a-fA-F][0-9a-fA-F:.]*")


def pcie_generation(pci: Element) -> int | None:
    """Return the PCI Express generation that a device's link_speed reports, or None."""
    match = _SPEED.fullmatch(pci.attributes.get("link_speed", ""))
    return _GENERATIONS.get(float(match[1])) if match else None


def bus_key(host: str, bus: str) -> str:
    """Return one text for every spelling of a host's bus id: as NCCL does, by the value of its hexadecimal digits."""
    digits = re.sub("[:.]", "", bus) if _BUS_DIGITS.fullmatch(bus) else ""
    return f"{host} {int(digits, 16):x}" if digits else f"{host} {bus}"


def model(pci: Element) -> tuple[str, str]:
    """Return a device's PCI vendor and device codes, lower case."""
    return pci.attributes.get("vendor", "").lower(), pci.attributes.get("device", "").lower()


def socket_profile(architecture: str, vendor: str, family: int, model_number: int) -> str | None:
    """Return the profile of the link between sockets of a kind of CPU; None for a kind that NCCL does not know."""
    if architecture in ("arm64", "ppc64"):
        return {"arm64": "socket_arm", "ppc64": "socket_power"}[architecture]
    if vendor == "AuthenticAMD":
        return "socket_amd"
    if vendor == "GenuineIntel":
        return next(f"socket_intel_{name}" for least, name in _INTEL_MODELS if model_number >= least)
    if vendor in _ZHAOXIN_VENDORS:
        return "socket_yongfeng" if (family, model_number) == _YONGFENG else "socket_zhaoxin"
    return None


def cpu_attributes(where: str, cpu: Element) -> dict[str, str | int]:
    """Return what a cpu element states of its kind, as the attributes of a root complex that `netsim.nccl` reads."""
    stated: dict[str, str | int] = {
        f"cpu_{key}": cpu.attributes[key] for key in ("arch", "vendor") if cpu.attributes.get(key)
    }
    if cpu.attributes.get("modelid", "").strip():
        stated["cpu_model"] = number(where, cpu, "modelid", default=None, least=0, most=2**31)
    return stated


def nvlink_profile(sm: int) -> str | None:
    """Return the NVLink profile of a GPU by its SM version; None below 60, where there was none."""
    if sm == 86:
        return "nvlink3_ga102"
    return next((name for least, name in _NVLINK_OF_SM if sm >= least), None)


def xgmi_profile(gcn: str) -> str:
    """Return the xgmi profile of an AMD GPU by its gcn architecture (older dumps write gfx90a as 910)."""
    code = gcn.removeprefix("gfx")
    if code.startswith(("94", "95")):
        return "xgmi4"
    return "xgmi3" if code in ("910", "90a") else "xgmi2"


def number(where: str, element: Element, key: str, *, default: int | None, least: int, most: int) -> int:
    """Read a whole number within bounds, decimal or as 0x..; missing or empty is the default, if there is one."""
    text = element.attributes.get(key, "").strip()
    if not text and default is not None:
        return default
    written = re.fullmatch(r"(-?\d{1,12})|0[xX]([0-9a-fA-F]{1,10})", text, re.ASCII)
    value = None if written is None else int(written[1]) if written[1] else int(written[2], 16)
    if value is None or not least <= value <= most:
        raise FabricError(
            f"{where}: line {element.line}: <{element.tag}> has {key}={text[:40]!r}; "
            f"a whole number from {least} to {most} is accepted"
        )
    return value


def hexadecimal(where: str, element: Element, key: str) -> int | None:
    """Read a hexadecimal code from an attribute; None where it is missing or empty."""
    text = element.attributes.get(key, "").strip()
    if not text:
        return None
    if not re.fullmatch(r"(0[xX])?[0-9a-fA-F]{1,8}", text):
        raise FabricError(
            f"{where}: line {element.line}: <{element.tag}> has {key}={text[:40]!r}; "
            "a hexadecimal code such as 0x030200 is accepted"
        )
    return int(text, 16)
