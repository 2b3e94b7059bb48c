"""A real Slurm cluster of two nodes on this machine: munged, slurmctld and one slurmd per node, all ours.

Slurm's commands inside a job read /etc/slurm, so the configuration lies there while the cluster runs;
what was there before is put back.
"""

import os
import re
import shutil
import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import psutil

ETC = Path("/etc/slurm")
FILES = ("slurm.conf", "gres.conf", "cgroup.conf")
MARK = "# written by the tests of cxrbench"
NODES = ("n1", "n2")


def why_not() -> str | None:
    """Why no cluster can be started here, in one sentence."""
    if missing := [
        name for name in ("munged", "slurmctld", "slurmd", "sbatch") if shutil.which(name) is None
    ]:
        return f"Slurm is not installed ({', '.join(missing)}): run `make slurm`"
    if os.geteuid() != 0:
        return "only root may start Slurm's daemons and write /etc/slurm"
    theirs = (ETC / "slurm.conf").exists() and MARK not in (ETC / "slurm.conf").read_text()
    if theirs and subprocess.run(["scontrol", "ping"], capture_output=True).returncode == 0:
        return "this machine belongs to a running Slurm cluster, which is left alone"
    return None


class Cluster:
    """Two nodes with all cores and a generic GPU each; partitions cpu (up), g5 and trn1 (nothing starts)."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.daemons: dict[str, subprocess.Popen[bytes]] = {}
        self.before: dict[str, bytes] = {}

    def start(self) -> None:
        """Start all daemons and wait until both nodes are idle."""
        ETC.mkdir(exist_ok=True)
        for name in FILES:
            path = ETC / name
            if path.exists() and MARK not in path.read_text():
                self.before[name] = path.read_bytes()
        self.folder.chmod(0o755)
        places = {"socket": "munge.socket", "pid-file": "munged.pid", "seed-file": "munged.seed"}
        places |= {"key-file": "munge.key", "log-file": "munged.log"}
        files = {name: self.folder / file for name, file in places.items()}
        files["key-file"].write_bytes(os.urandom(128))
        files["key-file"].chmod(0o600)
        for name, text in self._configuration().items():
            (ETC / name).write_text(f"{MARK}\n{text}")
        # --force: the folder may lie below one that others can write to, such as /tmp.
        self._run("munged", "--foreground", "--force", *(f"--{name}={path}" for name, path in files.items()))
        until(lambda: files["socket"].exists(), 30, "munged has no socket")
        self._run("slurmctld", "-D", "-c")
        for node in NODES:
            self.start_node(node)

    def start_node(self, node: str) -> None:
        """Start ``node`` and wait until it may be given jobs."""
        self._run(node, "-D", "-N", node, program="slurmd")
        until(lambda: self.state(node) == "idle", 60, f"node {node} is not idle")

    def kill_node(self, node: str) -> None:
        """What a power failure does: the node's daemon and its jobs' processes are gone, without a word.

        Slurm is then told what it would find out by itself within a minute.
        """
        here = [job for job in self.jobs() if job.get("NodeList") == node]
        ids = {job["JobId"] for job in here if job["JobState"] in ("RUNNING", "COMPLETING", "CONFIGURING")}
        daemon = self.daemons.pop(node)
        daemon.kill()
        daemon.wait()
        while victims := [process for process in psutil.process_iter() if _belongs_to(process, ids)]:
            for victim in victims:
                victim.kill()
            psutil.wait_procs(victims, timeout=10)
        down = ("scontrol", "update", f"NodeName={node}", "State=DOWN", "Reason=power")
        subprocess.run(down, check=True)

    def stop(self) -> None:
        """Stop everything that was started and put back the configuration that was found."""
        subprocess.run(["scancel", "--full", "--user", "root"], capture_output=True)
        ids = {job["JobId"] for job in self.jobs()}
        for process in psutil.process_iter():
            if process.pid != os.getpid() and _belongs_to(process, ids):
                process.kill()
        for name in (*NODES, "slurmctld", "munged"):
            if daemon := self.daemons.pop(name, None):
                daemon.terminate()
                try:
                    daemon.wait(15)
                except subprocess.TimeoutExpired:
                    daemon.kill()
                    daemon.wait()
        for name in FILES:
            (ETC / name).unlink(missing_ok=True)
            if name in self.before:
                (ETC / name).write_bytes(self.before[name])

    def jobs(self) -> list[dict[str, str]]:
        """What `scontrol show job` says of every job that the controller remembers."""
        done = subprocess.run(["scontrol", "show", "job", "--oneliner"], capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if line.startswith("JobId=")]
        return [dict(re.findall(r"(\S+?)=(\S*)", line)) for line in lines]

    def state(self, node: str) -> str:
        """The state of ``node`` as sinfo says it, such as idle or down*."""
        done = subprocess.run(["sinfo", "-h", "-n", node, "-o", "%t"], capture_output=True, text=True)
        return done.stdout.split("\n")[0]

    def _run(self, name: str, *words: str, program: str | None = None) -> None:
        with open(self.folder / f"{name}.out", "ab") as out:
            streams = {"stdin": subprocess.DEVNULL, "stdout": out, "stderr": out}
            command = [shutil.which(program or name) or name, *words]
            self.daemons[name] = subprocess.Popen(command, **streams)

    def _configuration(self) -> dict[str, str]:
        host = socket.gethostname().partition(".")[0]
        controller, *ports = _free_ports(1 + len(NODES))
        memory = int(0.9 * psutil.virtual_memory().total / 2**20)
        node = f"NodeHostname={host} NodeAddr=127.0.0.1 CPUs={os.cpu_count()} RealMemory={memory} Gres=gpu:1"
        nodes = "\n".join(f"NodeName={n} {node} Port={port}" for n, port in zip(NODES, ports, strict=True))
        slurm = f"""ClusterName=cxrbench
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={controller}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
CredType=cred/munge
AuthInfo=socket={self.folder}/munge.socket
StateSaveLocation={self.folder}/state
SlurmdSpoolDir={self.folder}/spool-%n
SlurmctldPidFile={self.folder}/slurmctld.pid
SlurmdPidFile={self.folder}/slurmd-%n.pid
SlurmctldLogFile={self.folder}/slurmctld.log
SlurmdLogFile={self.folder}/slurmd-%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SwitchType=switch/none
MpiDefault=none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU_Memory
JobAcctGatherType=jobacct_gather/none
GresTypes=gpu
ReturnToService=2
SlurmdTimeout=10
KillWait=30
MinJobAge=3600
{nodes}
PartitionName=cpu Nodes={",".join(NODES)} Default=YES MaxTime=INFINITE State=UP
PartitionName=g5 Nodes={",".join(NODES)} MaxTime=INFINITE State=DOWN
PartitionName=trn1 Nodes={",".join(NODES)} MaxTime=INFINITE State=DOWN
"""
        gres = f"NodeName={','.join(NODES)} Name=gpu File=/dev/null\n"
        return {"slurm.conf": slurm, "gres.conf": gres, "cgroup.conf": "CgroupAutomount=no\n"}


def until(done: Callable[[], bool], seconds: float, otherwise: str) -> None:
    """Look ten times a second until ``done``; AssertionError after ``seconds``."""
    deadline = time.monotonic() + seconds
    while not done():
        assert time.monotonic() < deadline, otherwise
        time.sleep(0.1)


def _belongs_to(process: psutil.Process, jobs: set[str]) -> bool:
    """Whether ``process`` is of one of ``jobs``: its environment says so, or it is the job's slurmstepd."""
    try:
        step = re.match(r"slurmstepd: \[(\d+)", " ".join(process.cmdline()))
        return (step is not None and step[1] in jobs) or process.environ().get("SLURM_JOB_ID") in jobs
    except psutil.Error:
        return False


def _free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports
