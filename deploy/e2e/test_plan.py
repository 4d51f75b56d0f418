"""check, plan, template, machine and the command line itself: nothing here starts an island."""

import json
import os
import shutil
import subprocess

import pytest

from conftest import Islands, WriteFile

SHELF = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "topology", "shelf")
QUAD = "machine: 'pack:4 [numa(memory=16GB)] core:6 pu:1'\n"


# ---- plan

def test_plan_json_has_the_promised_shape(islands: Islands, deployment: WriteFile) -> None:
    plan = islands.json("plan", deployment("version: 1\nlayout: 4ISL\nstorage: {buffer_pool: 12GiB}\n" + QUAD))
    assert plan["machine"]["cores"] == 24
    assert plan["layout"] == "4ISL"
    assert plan["bound"] is False
    promised = ["id", "cpus", "numa_nodes", "memory_bytes", "sites", "metrics_port"]
    assert [{key: island[key] for key in promised} for island in plan["islands"]] == [
        {"id": 0, "cpus": "0-5", "numa_nodes": "0", "memory_bytes": 3 << 30, "sites": "0-5", "metrics_port": 9400},
        {"id": 1, "cpus": "6-11", "numa_nodes": "1", "memory_bytes": 3 << 30, "sites": "6-11", "metrics_port": 9401},
        {"id": 2, "cpus": "12-17", "numa_nodes": "2", "memory_bytes": 3 << 30, "sites": "12-17", "metrics_port": 9402},
        {"id": 3, "cpus": "18-23", "numa_nodes": "3", "memory_bytes": 3 << 30, "sites": "18-23", "metrics_port": 9403},
    ]


def test_plan_text_shows_the_same(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 1\nlayout: 4ISL\nstorage: {buffer_pool: 12GiB}\n" + QUAD)
    done = islands.run("plan", path)
    assert done.code == 0 and done.err == ""
    assert "24 cores" in done.out
    assert "     3        6  18-23  3        3GiB  15.8MiB  resident  18-23     9403\n" in done.out
    assert "note: `up` would run unbound" in done.out


def test_plan_shows_what_the_engine_is_told_to_do_otherwise(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 1\nlayout: 4ISL\nstorage: {latching: always}\n" + QUAD)
    assert "latching always" in islands.run("plan", path).out
    assert islands.json("plan", path)["latching"] == "always"
    path = deployment("version: 1\nlayout: 4ISL\n" + QUAD)
    assert "latching" not in islands.run("plan", path).out
    assert islands.json("plan", path)["latching"] == "auto"
    assert islands.json("plan", path)["without"] == "none"
    path = deployment("version: 1\nlayout: 4ISL\nwithout: look_ahead\n" + QUAD)
    assert "without look_ahead" in islands.run("plan", path).out
    assert islands.json("plan", path)["without"] == "look_ahead"


def test_plan_of_this_machine(islands: Islands, deployment: WriteFile) -> None:
    plan = islands.json("plan", deployment("version: 1\nlayout: 1ISL\n"))
    assert plan["bound"] is True
    assert plan["machine"]["is_this_machine"] is True
    assert plan["islands"][0]["workers"] == plan["machine"]["cores"]


def test_plan_one_core_per_island_and_more_islands_than_cores(islands: Islands, deployment: WriteFile) -> None:
    plan = islands.json("plan", deployment("version: 1\nlayout: 24ISL\n" + QUAD))
    assert [island["cpus"] for island in plan["islands"]] == [str(cpu) for cpu in range(24)]
    plan = islands.json("plan", deployment("version: 1\nlayout: 24ISL\nmachine: 'pack:1 [numa] core:2 pu:1'\n"))
    assert len(plan["islands"]) == 24
    assert plan["cores_shared"] is True
    assert any("share" in note for note in plan["notes"])


def test_plan_spread_crosses_sockets(islands: Islands, deployment: WriteFile) -> None:
    plan = islands.json("plan", deployment("version: 1\nlayout: 6ISL\nplacement: spread\n" + QUAD))
    assert all(island["straddles_package"] for island in plan["islands"])


def test_plan_by_hand_and_hwloc_xml_beside_the_file(islands: Islands, deployment: WriteFile, folder: str) -> None:
    shutil.copy(os.path.join(SHELF, "memoryless-2x8.xml"), os.path.join(folder, "box.xml"))
    path = deployment("version: 1\nmachine: box.xml\nislands:\n"
                      "  - {cpus: '0-2', numa_nodes: '0', memory: 512MiB}\n  - {cpus: '9,11', memory: 1GiB}\n")
    plan = islands.json("plan", path)
    assert [(i["cpus"], i["numa_nodes"], i["memory_bytes"]) for i in plan["islands"]] == [
        ("0-2", "0", 512 << 20), ("9,11", "0", 1 << 30)]


def test_relative_paths_begin_at_the_file(islands: Islands, deployment: WriteFile, folder: str) -> None:
    plan = islands.json("plan", deployment("version: 1\ndata: {directory: ../elsewhere}\n"), cwd="/")
    assert plan["control_directory"] == os.path.join(folder, "run")
    assert plan["data_directory"] == os.path.join(os.path.dirname(folder), "elsewhere")


# ---- check

def test_check_says_ok(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 1\nlayout: 2ISL\n")
    done = islands.run("check", path)
    assert done.code == 0
    assert done.out.startswith(f"{path}: ok, 2ISL on ")
    assert islands.json("check", path) == {"file": path, "valid": True, "complaints": [], "details": [],
                                           "notes": islands.json("plan", path)["notes"]}


BAD = [
    ("version: 1\nlayuot: 2ISL\n", "2:1: found unknown key 'layuot', expected 'layout'?"),
    ("version: 1\nname: a\nname: b\n", "3:1: found 'name' a second time, expected it once (first on line 2)"),
    ("version: 1\ndata: {directory: &a x}\n", "2:19: found an anchor (&), expected the value alone"),
    ("version: 1\nmachine: 'pack:2 core:2 pu:1'\ncores: '0,9'\n", "3:8: found CPU 9, which "),
    ("version: 1\nmachine: none.xml\n", "2:10: found 'none.xml' (no such file), expected auto"),
    (QUAD + "version: 1\nstorage: {buffer_pool: 80GiB}\n", "3:24: found 80GiB of buffer pool, expected what fits"),
    ("version: 1\nmachine: 'pack:18 [numa(memory=16GB)] core:1 pu:1'\nlayout: 18ISL\nstorage: {buffer_pool: 252GiB}\n",
     "4:24: found 252GiB of buffer pool, expected what fits the machine: NUMA node 2 has 14.9 GiB, but island 2 needs"),
    ("version: 1\nlayout: 30ISL\n", "2:9: found 24 sites (auto) for 30 islands, expected at least one site per island"),
    ("version: 1\nstorage: {log: {ring_bytes: 3MiB}}\n", "2:29: found 3145728, expected a power of two from 512KiB"),
    ("version: 1\ncontrol: {directory: /%s}\n" % ("x" * 90), "2:22: found a directory whose socket paths have up to"),
    ("version: 1\nislands:\n  - {cpus: '0-1'}\n  - {cpus: '1'}\n", "4:12: found CPU 1 of island 0 again"),
    ("version: 1\nlayout: [\n", "3:1: found a YAML error"),
    ("version: 1\nstorage:\n\tbuffer_pool: 1GiB\n", "3:1: found a tab, expected spaces: YAML wants spaces"),
    ("version: 1\nstorage: {buffer_pool: 1G}\n", "2:24: found '1G', expected a size such as 12GiB, 64MiB or a plain "
     "number of bytes; did you mean 1GiB?"),
    ("", "1:1: found an empty file"),
]


@pytest.mark.parametrize("text, complaint", BAD)
@pytest.mark.parametrize("command", ["check", "plan"])
def test_bad_file(islands: Islands, deployment: WriteFile, command: str, text: str, complaint: str) -> None:
    path = deployment(text)
    done = islands.run(command, path)
    assert done.code == 2
    assert done.out == ""
    assert f"{path}:{complaint}" in done.err
    answer = islands.json(command, path, code=2)
    complaints = "\n".join(answer["complaints"]) if command == "check" else answer["error"]["message"]
    assert complaints == done.err.rstrip("\n")


@pytest.mark.parametrize("runtime", ["/run/user/4711", None])
def test_control_directory_too_deep_recommends_one_that_others_cannot_take(islands: Islands, deployment: WriteFile,
                                                                           runtime: str | None) -> None:
    path = deployment("version: 1\nname: deep\ncontrol: {directory: /%s}\n" % ("x" * 90))
    environment = {name: value for name, value in os.environ.items() if name != "XDG_RUNTIME_DIR"}
    if runtime:
        environment["XDG_RUNTIME_DIR"] = runtime
    own = "/run" if os.geteuid() == 0 else runtime or f"/run/user/{os.geteuid()}"
    done = islands.run("check", path, env=environment)
    assert done.code == 2 and done.err.endswith(f"for example {own}/islands/deep\n"), done


def test_all_complaints_at_once(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 2\nname: Bad\nmetrics: {base_port: 80}\n")
    assert [line[len(path):].split(" found ")[0] for line in islands.run("check", path).err.splitlines()] == [
        ":1:10:", ":2:7:", ":3:22:"]


def test_complaints_in_parts(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 1\nname: ', expected x'\nlayout: [\n")
    assert islands.json("check", path, code=2)["details"] == [
        {"file": path, "line": 4, "column": 1, "expected": "well-formed YAML",
         "found": "a YAML error (end of sequence flow not found)"}]
    deployment("version: 1\nname: ', expected x'\nmetrics: {base_port: 80}\n")
    assert islands.json("check", path, code=2)["details"] == [
        {"file": path, "line": 2, "column": 7, "found": "', expected x'",
         "expected": "a name of 1 to 32 characters from a-z, 0-9 and '-'"},
        {"file": path, "line": 3, "column": 22, "found": "'80'",
         "expected": "a port from 1024 to 65535, or 0 for no metrics"}]


# ---- check: what `up` would find

def complaints(islands: Islands, path: str) -> list[str]:
    found = islands.run("check", path)
    assert found.code == 2, found
    return [line.removeprefix(path) for line in found.err.splitlines()]


def test_directories_that_cannot_be(islands: Islands, deployment: WriteFile, folder: str) -> None:
    path = deployment("version: 1\ndata: {directory: mine.txt}\ncontrol: {directory: mine.txt/run}\n"
                      "storage: {log: {directory: new/log, ring_directory: new/../mine.txt/rings}}\n")
    file = deployment("mine", "mine.txt")
    wanted = "expected a directory that `up` can make, or write to"
    assert complaints(islands, path) == [
        f":2:19: found {file}, which is no directory, {wanted}",
        f":3:22: found {file}/run, where {file} is no directory, {wanted}",
        f":4:53: found {file}/rings, where {file} is no directory, {wanted}"]
    assert sorted(os.listdir(folder)) == ["deployment.yaml", "mine.txt"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root mounts")
@pytest.mark.parametrize("directory", ["disk", "disk/data"])
def test_directory_on_a_read_only_disk(islands: Islands, deployment: WriteFile, folder: str, directory: str) -> None:
    path = deployment(f"version: 1\ndata: {{directory: {directory}}}\n")
    disk = os.path.join(folder, "disk")
    os.mkdir(disk)
    assert islands.run("check", path).code == 0
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "ro", "tmpfs", disk], check=False, capture_output=True).returncode:
        pytest.skip("cannot mount a file system here")
    try:
        complaint, = complaints(islands, path)
    finally:
        subprocess.run(["umount", disk], check=True)
    assert complaint.startswith(f":2:19: found {folder}/{directory}, wh"), complaint
    assert " cannot be written to (Read-only file system), expected a directory" in complaint


def test_control_directory_that_others_can_enter(islands: Islands, deployment: WriteFile, folder: str) -> None:
    path = deployment("version: 1\ncontrol: {directory: open}\n")
    os.mkdir(os.path.join(folder, "open"), 0o755)
    complaint, = complaints(islands, path)
    assert complaint.startswith(f":2:22: found a directory that `up` refuses ({folder}/open has mode 0755"), complaint


def test_missing_file(islands: Islands, folder: str) -> None:
    done = islands.run("plan", os.path.join(folder, "none.yaml"))
    assert done.code == 2
    assert "none.yaml: cannot be read (No such file or directory)" in done.err
    assert islands.run("plan", folder).code == 2


# ---- template

@pytest.mark.parametrize("layout", ["1ISL", "2ISL", "24ISL", "48ISL", "auto"])
def test_template_is_ready_to_run(islands: Islands, folder: str, layout: str) -> None:
    path = os.path.join(folder, "new.yaml")
    done = islands.run("template", layout, "--output", path, "--rows-total", "5000", "--transport", "zmq",
                       "--name", "t")
    assert done.code == 0, done
    assert f"islands plan {path}" in done.out
    plan = islands.json("plan", path)
    assert plan["deployment"] == "t" and plan["transport"] == "zmq" and plan["bound"]
    assert layout == "auto" or plan["layout"] == layout
    with open(path, encoding="utf-8") as file:
        assert "range: [0, 5000]" in file.read()


def test_template_never_overwrites(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("mine\n")
    done = islands.run("template", "1ISL", "--output", path)
    assert done.code == 1
    assert "File exists" in done.err
    with open(path, encoding="utf-8") as file:
        assert file.read() == "mine\n"


def test_template_dry_run_writes_nothing(islands: Islands, folder: str) -> None:
    path = os.path.join(folder, "new.yaml")
    answer = islands.json("template", "1ISL", "--output", path, "--dry-run")
    assert answer["written"] is False and answer["yaml"].startswith("# An Islands deployment")
    assert not os.path.exists(path)


@pytest.mark.parametrize("arguments", [["4isl"], ["0ISL"], ["1ISL", "--transport", "tcp"], ["1ISL", "--name", "No!"],
                                       ["1ISL", "--rows-total", "0"], ["1ISL", "--rows-total", "-5"], []])
def test_template_refuses(islands: Islands, arguments: list[str]) -> None:
    done = islands.run("template", *arguments)
    assert done.code == 2 and "18446744073709551611" not in done.err


# ---- machine

def test_machine_tree_and_json(islands: Islands) -> None:
    done = islands.run("machine")
    assert done.code == 0 and "package" in done.out
    machine = islands.json("machine", "pack:2 [numa] core:4 pu:2")
    assert len(machine["packages"]) == 2 and len(machine["cores"]) == 8
    assert machine["is_this_machine"] is False
    assert machine["cores"][7]["pus"] == [14, 15]


def test_xml_of_this_machine_is_this_machine(islands: Islands, deployment: WriteFile) -> None:
    here = islands.json("machine")
    xml = islands.json("machine", "--measure")["hwloc_xml"]  # what `lstopo x.xml` writes
    x = deployment(xml, "x.xml")
    plan = islands.json("plan", deployment("version: 1\nmachine: x.xml\n"))
    assert plan["bound"] is True and plan["machine"]["is_this_machine"] is True
    assert plan["machine"]["source"] == f"this machine, as in {x}"
    assert plan["machine"]["memory_bytes"] == here["memory_bytes"]
    model = next(package["cpu_model"] for package in here["packages"])
    if model:
        deployment(xml.replace(f'value="{model}"', 'value="another"'), "x.xml")
        assert islands.json("plan", os.path.join(os.path.dirname(x), "deployment.yaml"))["bound"] is False


def test_machine_that_is_none(islands: Islands) -> None:
    done = islands.run("machine", "pack:x")
    assert done.code == 2
    assert "pack:x" in done.err
    done = islands.run("machine", "nowhere.xml")
    assert done.code == 2 and "nowhere.xml" in done.err, done


# ---- the command line

def test_format_may_stand_before_or_after(islands: Islands, deployment: WriteFile) -> None:
    path = deployment("version: 1\n")
    lines = [["--format", "json", "plan", path], ["plan", "--format", "json", path], ["plan", path, "--format=json"]]
    outputs = [islands.run(*line).out for line in lines]
    assert outputs[0] == outputs[1] == outputs[2]
    assert json.loads(outputs[0])["islands"]


def test_help_and_version(islands: Islands) -> None:
    done = islands.run("--help")
    assert done.code == 0 and "Examples:" in done.out and "124 timeout" in done.out
    for command in ["check", "plan", "template", "machine"]:
        assert f"  {command} " in done.out
        help_text = islands.run(command, "--help")
        assert help_text.code == 0 and f"Usage: islands {command}" in help_text.out
        assert "Exit codes:" in help_text.out
    assert islands.run("--version").out.startswith("islands ")


@pytest.mark.parametrize("line, says", [
    (["plna", "x.yaml"], "unknown command 'plna'; did you mean 'plan'?"),
    (["--format", "json", "nonsense"], "unknown command 'nonsense'; see `islands --help`"),
    (["plan"], "FILE is required; see `islands plan --help`"),
    (["plan", "x", "--bogus"], "--bogus"),
    (["--format", "xml", "machine"], "xml"),
    (["--format"], "--format"),
    ([], "Usage: islands"),
])
def test_usage_errors(islands: Islands, line: list[str], says: str) -> None:
    done = islands.run(*line)
    assert done.code == 2
    assert says in done.err
    assert done.out == "" or json.loads(done.out)["error"]["exit_code"] == 2


def test_a_full_disk_is_not_success(islands: Islands) -> None:
    with open("/dev/full", "w", encoding="utf-8") as full:
        done = subprocess.run([islands, "machine"], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 1
    assert "stdout" in done.stderr
