"""`islands workload new`: what it writes builds outside of the tree, is tested, runs and is swept as its README says,
and notices when a change of it is lost."""

import os
import re
import shutil
import signal
import subprocess
import tempfile
from collections.abc import Iterator

import pytest

from cluster import Cluster, cluster, wait_until  # noqa: F401
from conftest import BINARIES, Document, Islands

BUILD = os.path.dirname(BINARIES)
FILES = ["CMakeLists.txt", "README.md", "bank.cc", "bank.yaml", "bank_sweep.yaml", "bank_test.cc"]
ENVIRONMENT = dict(os.environ, PATH=f"{BINARIES}:{os.environ['PATH']}")
TWO_POINTS = {"layout: machine": "layout: [2ISL]", "remote: [0, 50, 100]": "remote: [0, 50]",
              "seconds: 1, warmup: 0.2, repeat: 3": "seconds: 0.2, warmup: 0, repeat: 1"}


def shell(command: str, cwd: str, code: int = 0) -> str:
    done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=900, cwd=cwd, env=ENVIRONMENT)
    assert done.returncode == code, f"{command}: {done.stdout}{done.stderr}"
    return done.stdout + done.stderr


def change(path: str, replaced: dict[str, str]) -> None:
    with open(path, encoding="utf-8") as file:
        text = file.read()
    for old, new in replaced.items():
        assert old in text, old
        text = text.replace(old, new)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def blocks_of(readme: str) -> list[str]:
    with open(readme, encoding="utf-8") as file:
        return [line.split("  #")[0] for block in re.findall(r"^```sh\n(.*?)^```", file.read(), re.M | re.S)
                for line in block.splitlines() if line]


@pytest.fixture(scope="module")
def bank(islands: Islands) -> Iterator[str]:
    """A folder that `islands workload new bank` has written, built."""
    if not os.path.isfile(os.path.join(BUILD, "lib", "libislands_trial.so")):
        pytest.skip(f"{BUILD} is no build folder of ours with islands_trial")
    folder = tempfile.mkdtemp(prefix="islands-")
    done = islands.run("workload", "new", "bank", cwd=folder, env=ENVIRONMENT)
    assert done.code == 0 and "export PATH" not in done.out, done
    made = os.path.join(folder, "bank")
    change(os.path.join(made, "bank.yaml"), {"buffer_pool: 256MiB": "buffer_pool: 128MiB"})
    shell("cmake -B build && cmake --build build", made)
    yield made
    shutil.rmtree(folder, ignore_errors=True)


def bank_in(cluster: Cluster, bank: str) -> str:
    """The test's own copy, whose deployment is the cluster's."""
    made = shutil.copytree(bank, os.path.join(cluster.folder, "bank"), ignore=shutil.ignore_patterns("data", "run"))
    cluster.file = os.path.join(made, "bank.yaml")
    return made


def run(cluster: Cluster, *options: object, code: int = 0) -> Document:
    made = os.path.dirname(cluster.file)
    return cluster.islands.json("run", cluster.file, os.path.join(made, "build", "bank.so"), "--duration", 0.3,
                                "--warmup", 0, "--results", os.path.join(made, "results"), *options, code=code)


def test_files_are_written_once(islands: Islands, folder: str) -> None:
    told = islands.json("workload", "new", "two_banks", cwd=folder, env=ENVIRONMENT)
    assert told["files"] == [name.replace("bank", "two_banks") for name in FILES]
    assert told["next"][0] == "cd two_banks" and "islands sweep two_banks_sweep.yaml" in told["next"]
    made = os.path.join(folder, "two_banks")
    assert sorted(os.listdir(made)) == sorted(told["files"])
    for name in told["files"]:
        with open(os.path.join(made, name), encoding="utf-8") as file:
            assert not re.search("newcomer", file.read(), re.I), name
    with open(os.path.join(made, "two_banks.cc"), encoding="utf-8") as file:
        assert "class TwoBanksWorkload final" in file.read()
    assert islands.run("check", os.path.join(made, "two_banks.yaml")).code == 0  # names of deployments have no '_'
    again = islands.run("workload", "new", "two_banks", cwd=folder)
    assert again.code == 2 and "two_banks is not empty" in again.err, again
    elsewhere = islands.run("workload", "new", "two_banks", "--directory", "some where", cwd=folder)
    assert elsewhere.code == 0 and "  cd 'some where'\n" in elsewhere.out, elsewhere
    assert f"  export PATH={BINARIES}:$PATH\n" in elsewhere.out, "cmake would not find it otherwise"


@pytest.mark.parametrize("words, says", [
    (["new", "Bank"], "NAME: found 'Bank', expected a lower-case letter"), (["new", "a-b"], "found 'a-b'"),
    (["new", "1st"], "found '1st'"), (["new", "../up"], "found '../up'"), (["new", "b" * 33], "at most 32"),
    (["new", "micro"], "NAME: found 'micro', a workload that is there"), (["new", "test"], "a target of every CMake"),
    (["new", "bank", "--directory", "file"], "file is a file"), (["new"], "NAME"), (["old", "bank"], "'old'"),
    ([], "new")])
def test_what_cannot_be_is_told(islands: Islands, folder: str, words: list[str], says: str) -> None:
    open(os.path.join(folder, "file"), "w").close()
    done = islands.run("workload", *words, cwd=folder)
    assert done.code == 2 and says in done.err and done.out == "", done
    told = islands.json("workload", *words, code=2, cwd=folder)
    assert says in told["error"]["message"] and os.listdir(folder) == ["file"]


def test_it_is_used_as_its_readme_says(cluster: Cluster, bank: str) -> None:
    made, cluster.file = bank, os.path.join(bank, "bank.yaml")  # where it is built already
    change(os.path.join(made, "bank_sweep.yaml"), TWO_POINTS)
    lines = blocks_of(os.path.join(made, "README.md"))
    assert [line.split()[:2] for line in lines] == [
        ["cmake", "-B"], ["ctest", "--test-dir"], ["islands", "up"], ["islands", "run"], ["islands", "down"],
        ["islands", "sweep"], ["islands", "report"]]
    said = {}
    for line in lines:
        words = line.split()
        said[words[1] if words[0] == "islands" else words[0]] = shell(
            line + (" --duration 0.5 --warmup 0" if words[:2] == ["islands", "run"] else ""), made)
    assert "100% tests passed" in said["ctest"] and re.search(r"sum check +ok", said["run"])
    assert "2 of 2 runs ended well, their checks held" in said["sweep"] and "2ISL" in said["sweep"], said["sweep"]
    assert "report/index.html" in said["report"], said["report"]


def test_its_object_is_found_wherever_it_lies(cluster: Cluster, bank: str) -> None:
    """And again by an island that is restarted, or killed."""
    made = bank_in(cluster, bank)
    cluster.up()
    told = cluster.islands.json("load", cluster.file, "build/bank.so", cwd=made)
    assert told["workload"] == "bank" and told["rows"] == 100_000
    first = run(cluster, "--remote", 50)
    assert first["sum_check"] == "ok" and first["per_scope"]["distributed"]["committed"] > 0, first
    called = cluster.islands.run("client", cluster.file, "call", "bank.visit", "17")
    assert called.code == 0 and re.search(r"visits\W+\d+", called.out), called
    pid = cluster.island(0)["pid"]
    os.kill(pid, signal.SIGKILL)
    wait_until(lambda: cluster.island(0)["state"] == "ready" and cluster.island(0)["pid"] != pid, what="the island")
    assert cluster.islands.run("client", cluster.file, "call", "bank.visit", "17").code == 0
    assert cluster.islands.run("restart", cluster.file).code == 0
    assert run(cluster)["sum_check"] == "ok"
    help_text = cluster.islands.run("run", cluster.file, "build/bank.so", "--help", cwd=made).out
    assert "--changes" in help_text and "transactions that add a visit to each row" in help_text, help_text
    refused = cluster.islands.run("run", cluster.file, "build/bank.so", "--rows", "0", cwd=made)
    assert refused.code == 2 and "--rows: found '0', expected a whole number from 1 to 100" in refused.err, refused
    cluster.down()
    advice = cluster.islands.json("advise", cluster.file, "--workload", os.path.join(made, "build", "bank.so"),
                                  "--layouts", "1ISL", "2ISL", "--rounds", 0, "--seconds", 0.1, "--warmup", 0,
                                  "--repeat", 1, "--settings", "none", cwd=made)
    assert advice["workload"].endswith("bank.so"), advice


def test_sweeps_tell_where_no_object_is(islands: Islands, bank: str, folder: str) -> None:
    made = shutil.copytree(bank, os.path.join(folder, "bank"), ignore=shutil.ignore_patterns("build"))
    done = islands.run("sweep", os.path.join(made, "bank_sweep.yaml"), "--dry-run", cwd=folder)
    assert done.code == 2 and re.search(r"bank_sweep.yaml:4:11: found '\S*/bank/build/bank.so', expected a workload's "
                                        "object that is built", done.err), done


LOST = {"++counts[i];": "if (i > 0) ++counts[i];"}                    # one of a transaction's changes
BACK = {"visit.found = counts[i];": "visit.found = counts[i] % 2;"}  # a count that does not only grow


@pytest.mark.soak
@pytest.mark.parametrize("mutant, says", [(LOST, "the sum check failed"), (BACK, "have read what cannot be")])
def test_what_is_lost_is_noticed(cluster: Cluster, bank: str, mutant: dict[str, str], says: str) -> None:
    made = bank_in(cluster, bank)
    shutil.rmtree(os.path.join(made, "build"))  # it names the folder that it was made in
    change(os.path.join(made, "bank.cc"), mutant)
    change(os.path.join(made, "bank.yaml"), {"range: [0, 100000]": "range: [0, 200]"})
    shell("cmake -B build && cmake --build build --target bank", made)
    if mutant is LOST:
        shell("cmake --build build", made)
        assert "Run_NoVisitIsLost" in shell("build/bank_test", made, code=1)
    cluster.up()
    done = cluster.islands.run("run", cluster.file, os.path.join(made, "build", "bank.so"), "--duration", 0.5,
                               "--warmup", 0, "--results", os.path.join(made, "results"))
    assert done.code == 1 and says in done.err, done
