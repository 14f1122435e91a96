"""Wall time of whole commands beside a bare Python interpreter, medians of several interleaved runs."""

import argparse
import statistics
import subprocess
import sys
import time

COMMANDS = {
    "python -c pass": ["-c", "pass"],
    "netsim --help": ["-m", "netsim", "--help"],
    "netsim perf, 8 ranks": [
        *("-m", "netsim", "perf", "all_reduce", "--topology", "ideal-switch:8@450GB/s,1us"),
        *("--algo", "ring", "--csv", "-"),
    ],
    "netsim perf hgx-h100": [
        "-m",
        "netsim",
        "perf",
        "all_reduce",
        "--topology",
        "hgx-h100",
        "--algo",
        "ring",
        "--csv",
        "-",
    ],
}


def main() -> None:
    """Print one line a command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=9, help="runs a command (default 9)")
    runs = parser.parse_args().runs
    seconds: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(runs):
        for name, arguments in COMMANDS.items():
            begin = time.perf_counter()
            subprocess.run([sys.executable, *arguments], check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            seconds[name].append(time.perf_counter() - begin)
    for name, values in seconds.items():
        print(f"{name:24}{statistics.median(values) * 1e3:>8.0f} ms")


if __name__ == "__main__":
    main()
