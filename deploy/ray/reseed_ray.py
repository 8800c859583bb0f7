#!/usr/bin/env python3
"""Computes the shards of plans on a Ray cluster, and joins them.

    reseed plan tape.mp4 restored.mkv --out /shared/tape.json --model 3b
    python reseed_ray.py /shared/tape.json --address auto

Nodes need `reseed`, and plans, inputs and outputs under the same paths or addresses. A node that is lost, and a shard
that fails, cost that shard alone: it runs again. Running this again continues where it ended.
"""

import argparse
import json
import subprocess
import sys

import ray
from ray.exceptions import RayError

# Exit codes of reseed that another node would give too: usage, input, model.
FINAL = {2, 3, 4}


class Failed(Exception):
    """A shard that another attempt may finish."""


class Impossible(Exception):
    """A shard that no attempt can finish."""


def run_shard(reseed, plan, shard, options):
    """Computes one shard on this node."""
    done = subprocess.run([reseed, "shard", plan, str(shard), *options], stderr=subprocess.PIPE, text=True)
    if done.returncode:
        reason = (done.stderr.strip().splitlines() or ["no message"])[-1]
        kind = Impossible if done.returncode in FINAL else Failed
        raise kind(f"{plan}, shard {shard}, exit code {done.returncode}: {reason}")


def missing(reseed, plan):
    """The shards of a plan that are not finished."""
    listed = subprocess.run([reseed, "shard", plan, "--missing", "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(listed.stdout)["missing"]


def run(plans, reseed="reseed", gpus=1.0, cpus=1.0, attempts=5, options=()):
    """Computes all missing shards of all plans, and joins each plan when its shards are done."""
    task = ray.remote(num_gpus=gpus, num_cpus=cpus, max_retries=attempts, retry_exceptions=[Failed])(run_shard)
    waiting, left, failed = {}, {}, {}
    for plan in plans:
        shards = missing(reseed, plan)
        left[plan] = len(shards)
        waiting |= {task.remote(reseed, plan, shard, list(options)): plan for shard in shards}
        print(f"{plan}: {len(shards)} shards to compute", flush=True)
    for plan in [plan for plan in plans if not left[plan]]:
        join(reseed, plan, failed)
    while waiting:
        [done], _ = ray.wait(list(waiting), num_returns=1)
        plan = waiting.pop(done)
        left[plan] -= 1
        try:
            ray.get(done)
        except (RayError, Failed, Impossible) as error:
            reason = getattr(error, "cause", None) or error
            failed[plan] = str(reason).strip().splitlines()[-1]
            print(f"error: {failed[plan]}", file=sys.stderr, flush=True)
        if not left[plan] and plan not in failed:
            join(reseed, plan, failed)
    return failed


def join(reseed, plan, failed):
    """Joins the shards of a plan."""
    if subprocess.run([reseed, "join", plan]).returncode:
        failed[plan] = "the join failed"


def main():
    parser = argparse.ArgumentParser(description="Computes the shards of plans on a Ray cluster, and joins them.")
    parser.add_argument("plans", nargs="+", metavar="PLAN", help="a plan of `reseed plan`")
    parser.add_argument("--address", help="the Ray cluster; this machine alone unless given")
    parser.add_argument("--reseed", default="reseed", help="the program on every node")
    parser.add_argument("--gpus", type=float, default=1.0, help="GPUs of a shard; 0 computes on the CPU")
    parser.add_argument("--cpus", type=float, default=1.0, help="CPU cores of a shard")
    parser.add_argument("--attempts", type=int, default=5, help="repetitions of a shard that fails")
    parser.add_argument("--option", action="append", default=[], help="an option of `reseed shard`, such as --mixed")
    args = parser.parse_args()
    ray.init(address=args.address, log_to_driver=False)
    failed = run(args.plans, args.reseed, args.gpus, args.cpus, args.attempts, args.option)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
