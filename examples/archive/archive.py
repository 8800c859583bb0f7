#!/usr/bin/env python3
"""Restores a folder of videos on a Ray cluster.

    python archive.py /archive/tapes /archive/restored --address auto -- --model 3b --preset archive

Every video gets a plan in the folder `plans` beside the results. All shards of all videos share one queue, so that
no node waits for the end of a video. Running this again plans what is new, computes what is missing and leaves
finished videos alone.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "deploy" / "ray"))

VIDEOS = {".avi", ".dv", ".m2ts", ".mkv", ".mov", ".mp4", ".mpg", ".mts", ".ts", ".vob", ".webm"}


def plan_all(reseed, source, target, options):
    """Plans the videos of a folder that have no result yet. Returns the plans."""
    plans = []
    for video in sorted(path for path in source.iterdir() if path.suffix.lower() in VIDEOS):
        result, plan = target / f"{video.stem}.mkv", target / "plans" / f"{video.stem}.json"
        if result.exists():
            print(f"{result}: already complete")
            continue
        if not plan.exists():
            command = [reseed, "plan", str(video), str(result), "--out", str(plan), *options]
            if subprocess.run(command).returncode:
                print(f"error: {video}: no plan", file=sys.stderr)
                continue
        plans.append(str(plan))
    return plans


def main():
    parser = argparse.ArgumentParser(description="Restores a folder of videos on a Ray cluster.")
    parser.add_argument("source", type=pathlib.Path, help="a folder of videos that all nodes know")
    parser.add_argument("target", type=pathlib.Path, help="the folder of the results")
    parser.add_argument("--address", help="the Ray cluster; this machine alone unless given")
    parser.add_argument("--reseed", default="reseed", help="the program on every node")
    parser.add_argument("--gpus", type=float, default=1.0, help="GPUs of a shard; 0 computes on the CPU")
    parser.add_argument("options", nargs="*", help="options of `reseed plan`, after --")
    args = parser.parse_args()
    (args.target / "plans").mkdir(parents=True, exist_ok=True)
    plans = plan_all(args.reseed, args.source, args.target, args.options)
    if not plans:
        return

    import ray
    import reseed_ray

    ray.init(address=args.address, log_to_driver=False)
    failed = reseed_ray.run(plans, args.reseed, args.gpus)
    for plan, reason in failed.items():
        print(f"error: {plan}: {reason}", file=sys.stderr)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
