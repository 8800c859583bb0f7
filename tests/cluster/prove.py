#!/usr/bin/env python3
"""Computes a video in shards with real schedulers and a real S3 server, and compares it with one machine.

    python prove.py --reseed target/release/reseed --work target/cluster [--only s3 ray slurm openjd]

Needs moto[server], ray and openjd-cli in this Python, and Slurm with munge for `slurm`. Runs on the CPU.
"""

import argparse
import hashlib
import os
import pathlib
import random
import shutil
import signal
import socket
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
OPTIONS = ["--model", "formula:tiny", "--scale", "1", "--codec", "ffv1", "--device", "cpu"]


def sha(path):
    return hashlib.sha256(pathlib.Path(path).read_bytes()).hexdigest()


def wait_for(what, condition, seconds=60):
    until = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > until:
            sys.exit(f"FAILED: waited {seconds} s for {what}")
        time.sleep(0.05)


def listens(port):
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


class Lab:
    """A video, its result on one machine, and plans of it."""

    def __init__(self, reseed, work, frames):
        self.reseed, self.work = str(pathlib.Path(reseed).resolve()), pathlib.Path(work).resolve()
        shutil.rmtree(self.work, ignore_errors=True)
        self.work.mkdir(parents=True)
        self.video, seconds = self.work / "in.mkv", frames / 30
        subprocess.run(
            ["ffmpeg", "-v", "error", "-f", "lavfi", "-i", f"testsrc2=size=64x64:rate=30:duration={seconds}",
             "-f", "lavfi", "-i", f"sine=frequency=440:duration={seconds}", "-c:v", "ffv1", "-c:a", "flac",
             str(self.video)], check=True)
        self.call("upscale", self.video, self.work / "one.mkv", *OPTIONS)
        self.expected = sha(self.work / "one.mkv")

    def call(self, *args, env=None):
        done = subprocess.run([self.reseed, "-q", *map(str, args)], env=env, stderr=subprocess.PIPE, text=True)
        if done.returncode:
            sys.exit(f"FAILED: reseed {' '.join(map(str, args))}: {done.stderr.strip()}")

    def plan(self, name, segments=1):
        folder = self.work / name
        folder.mkdir()
        plan, output = folder / "job.json", folder / "out.mkv"
        self.call("plan", self.video, output, "--out", plan, "--segments", segments, *OPTIONS)
        return plan, output

    def compare(self, name, output):
        if sha(output) != self.expected:
            sys.exit(f"FAILED: {name}: other bytes than one machine")
        print(f"ok: {name}", flush=True)

    def finished(self, plan):
        return len(list((plan.parent / "job" / "shards").glob("*.json")))


def s3(lab):
    """Plan, shards and join in a bucket."""
    import boto3

    port = 5599
    server = subprocess.Popen([sys.executable, "-m", "moto.server", "-p", str(port)],
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for("moto", lambda: listens(port))
        address = f"http://127.0.0.1:{port}"

        keys = {"aws_access_key_id": "key", "aws_secret_access_key": "secret", "region_name": "us-east-1"}
        bucket = boto3.client("s3", endpoint_url=address, **keys)
        bucket.create_bucket(Bucket="tapes")
        bucket.upload_file(str(lab.video), "tapes", "in.mkv")
        env = {**os.environ, "AWS_ENDPOINT": address, "AWS_ALLOW_HTTP": "true", "AWS_REGION": "us-east-1",
               "AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret"}
        places = ["--work", lab.work / "s3-work", "--cache", lab.work / "s3-cache"]
        plan = "s3://tapes/jobs/tape.json"
        lab.call("plan", "s3://tapes/in.mkv", "s3://tapes/out.mkv", "--out", plan, "--segments", 2, *places, *OPTIONS,
                 env=env)
        listed = subprocess.run([lab.reseed, "shard", plan, "--missing"], env=env, stdout=subprocess.PIPE, text=True)
        shards = listed.stdout.split()
        # The first shard by two machines at once: one of them creates the objects.
        twice = [subprocess.Popen([lab.reseed, "-q", "shard", plan, shards[0], "--work", str(lab.work / f"s3-{i}")],
                                  env=env) for i in range(2)]
        if any(process.wait() for process in twice):
            sys.exit("FAILED: two writers of one shard")
        for shard in shards:
            lab.call("shard", plan, shard, *places, env=env)
        lab.call("join", plan, *places, env=env)
        bucket.download_file("tapes", "out.mkv", str(lab.work / "s3.mkv"))
        lab.compare("s3", lab.work / "s3.mkv")
    finally:
        server.kill()
        server.wait()


def ray(lab, kills, seed):
    """Ray with several local nodes, of which some are killed."""
    from ray.cluster_utils import Cluster

    driver = [sys.executable, str(ROOT / "deploy/ray/reseed_ray.py"), "--reseed", lab.reseed, "--gpus", "0",
              "--attempts", "10"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    chance = random.Random(seed)
    for nodes, killed in [(1, 0), (2, 0), (5, 0), (3, kills)]:
        cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1})
        workers = [cluster.add_node(num_cpus=1) for _ in range(nodes - 1)]
        name = f"ray-{nodes}-nodes-{killed}-kills"
        plan, output = lab.plan(name)
        start = lambda: subprocess.Popen([*driver, "--address", cluster.address, str(plan)], **quiet)  # noqa: E731
        run = start()
        for _ in range(killed):
            time.sleep(chance.uniform(0.3, 3.0))
            if run.poll() is not None:
                break
            victim = chance.choice(["shard", "node", "driver"])
            print(f"  kill: {victim} after {lab.finished(plan)} shards", flush=True)
            if victim == "shard":
                subprocess.run(["pkill", "-KILL", "-f", f"shard {plan}"])
            elif victim == "node":
                cluster.remove_node(workers.pop(), allow_graceful=False)
                workers.append(cluster.add_node(num_cpus=1))
            else:
                run.kill()
                run.wait()
                run = start()
        if run.wait():
            sys.exit(f"FAILED: {name}: the driver failed")
        cluster.shutdown()
        lab.compare(name, output)


def slurm(lab):
    """Slurm with several slurmd on this machine."""
    work, host = lab.work / "slurm", socket.gethostname().split(".")[0]
    work.mkdir()
    (work / "slurm.conf").write_text(f"""
ClusterName=reseed
SlurmctldHost={host}
SlurmctldPort=16817
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge.socket
CredType=cred/munge
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool.%n
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.%n.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
SelectType=select/cons_res
SelectTypeParameters=CR_CPU
SchedulerParameters=sched_interval=1,batch_sched_delay=0
NodeName=n[1-3] NodeHostname={host} NodeAddr=127.0.0.1 Port=[17001-17003] CPUs=1 State=UNKNOWN
PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP OverSubscribe=NO
""")
    (work / "state").mkdir()
    key = work / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    env = {**os.environ, "SLURM_CONF": str(work / "slurm.conf"), "RESEED": lab.reseed}
    out = {"stdout": open(work / "log", "w"), "stderr": subprocess.STDOUT}
    services = [subprocess.Popen(["munged", "-F", "--force", f"--key-file={key}", f"--socket={work}/munge.socket",
                                  f"--pid-file={work}/munge.pid", f"--log-file={work}/munge.log",
                                  f"--seed-file={work}/munge.seed"], **out)]
    try:
        wait_for("munge", (work / "munge.socket").exists)
        services.append(subprocess.Popen(["slurmctld", "-D"], env=env, **out))
        services += [subprocess.Popen(["slurmd", "-D", "-N", f"n{i}"], env=env, **out) for i in (1, 2, 3)]
        idle = lambda: "idle" in subprocess.run(["sinfo", "-h", "-o", "%T"], env=env, stdout=subprocess.PIPE,  # noqa
                                                stderr=subprocess.DEVNULL, text=True).stdout
        wait_for("slurmd", idle)
        plan, output = lab.plan("slurm-job")
        subprocess.run([str(ROOT / "deploy/slurm/reseed-slurm"), str(plan), "--output", str(work / "shard-%a.log")],
                       env=env, check=True, cwd=work)
        wait_for("a shard", lambda: lab.finished(plan) > 0, 120)
        # A node is lost in the middle of a shard; Slurm returns the shard to the queue.
        services[-1].send_signal(signal.SIGKILL)
        subprocess.run(["pkill", "-KILL", "-f", f"shard {plan}"])
        subprocess.run(["scontrol", "update", "NodeName=n3", "State=DOWN", "Reason=killed"], env=env)
        wait_for("the join", output.exists, 300)
        lab.compare("slurm", output)
    finally:
        for service in services:
            service.kill()
            service.wait()
        subprocess.run(["pkill", "-KILL", "slurmstepd"])


def openjd(lab):
    """The template, checked and run by openjd-cli."""
    template = str(ROOT / "deploy/openjd/reseed.yaml")
    subprocess.run(["openjd", "check", template], check=True, stdout=subprocess.DEVNULL)
    plan, output = lab.plan("openjd", segments=2)
    shards = subprocess.run([lab.reseed, "shard", str(plan), "--missing"], stdout=subprocess.PIPE, text=True).stdout
    parameters = {"Plan": plan, "LastShard": len(shards.split()) - 1, "Reseed": lab.reseed, "Device": "cpu"}
    arguments = [word for name, value in parameters.items() for word in ("-p", f"{name}={value}")]
    subprocess.run(["openjd", "run", template, "--step", "Join", "--run-dependencies", *arguments], check=True,
                   stdout=subprocess.DEVNULL)
    lab.compare("openjd", output)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--reseed", required=True)
    parser.add_argument("--work", default="target/cluster")
    parser.add_argument("--only", nargs="+", choices=["s3", "ray", "slurm", "openjd"],
                        default=["s3", "ray", "slurm", "openjd"])
    parser.add_argument("--frames", type=int, default=900)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    lab = Lab(args.reseed, args.work, args.frames)
    for name in args.only:
        if name == "ray":
            ray(lab, args.kills, args.seed)
        elif name == "slurm" and not shutil.which("slurmctld"):
            sys.exit("Slurm is missing: sudo apt-get install slurm-wlm munge")
        else:
            {"s3": s3, "slurm": slurm, "openjd": openjd}[name](lab)
    shutil.rmtree(lab.work)


if __name__ == "__main__":
    main()
