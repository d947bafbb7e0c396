# SPDX-License-Identifier: Apache-2.0
import json
import os
import stat
import subprocess

import pytest

CAN_NOT = {
    "missing/plan.json": "can't write: No such file or directory",
    "/proc/plan.json": "can't write: ",  # no one may, not even root
    "net.json/plan.json": "can't write: Not a directory",
    ".": "is a directory",
    "dangling": "is a link to nothing",
    "circular": "is a link to nothing",
    "/dev/full": "can't write: No space left on device",
}


@pytest.fixture
def plan_to(reprise, net):
    return lambda path: reprise("plan", net, "--budget", "30", "-o", path)


def mode(path):
    return stat.S_IMODE(path.stat().st_mode)


def is_whole(path):
    return json.loads(path.read_text())["steps"][0] == ["compute", "f1"]


def test_a_new_file_has_the_mode_that_the_umask_leaves(plan_to, tmp_path):
    before = os.umask(0o027)
    try:
        assert plan_to("plan.json").code == 0
    finally:
        os.umask(before)
    assert mode(tmp_path / "plan.json") == 0o640


def test_an_old_file_is_replaced_and_keeps_its_mode(plan_to, tmp_path):
    path = tmp_path / "plan.json"
    path.write_text("old" * 100_000)
    for bits in (0o600, 0o664):
        path.chmod(bits)
        assert plan_to("plan.json").code == 0
        assert is_whole(path)
        assert mode(path) == bits


def test_a_link_stays_a_link(plan_to, tmp_path):
    (tmp_path / "far").mkdir()
    target = tmp_path / "far" / "plan.json"
    target.write_text("old")
    (tmp_path / "near.json").symlink_to("far/plan.json")
    (tmp_path / "nearer.json").symlink_to("near.json")
    assert plan_to("nearer.json").code == 0
    assert (tmp_path / "nearer.json").is_symlink() and (tmp_path / "near.json").is_symlink()
    assert is_whole(target)
    assert os.listdir(tmp_path / "far") == ["plan.json"]


def test_devices_are_written_to_and_stay(plan_to, reprise, net):
    assert plan_to("/dev/null").code == 0
    assert stat.S_ISCHR(os.stat("/dev/null").st_mode)
    assert reprise("convert", net, "-o", "/dev/null").code == 0


def test_standard_output_that_is_a_file_is_added_to(program, net, tmp_path):
    """The file is not replaced under the shell's feet."""
    with open(tmp_path / "all.txt", "w") as out:
        out.write("before\n")
        out.flush()
        words = [program, "convert", net, "-o", "/dev/stdout"]
        assert subprocess.run(words, stdout=out, cwd=tmp_path).returncode == 0
    assert (tmp_path / "all.txt").read_text().startswith('before\n{"format": "reprise-graph"')


def test_a_pipe_gets_it_all(program, net, tmp_path):
    script = f"'{program}' convert {net} -o >(cat > copy.json); wait $!"
    assert subprocess.run(["bash", "-c", script], cwd=tmp_path).returncode == 0
    assert json.loads((tmp_path / "copy.json").read_text())["name"] == "net"


@pytest.mark.parametrize("path", CAN_NOT)
def test_what_can_not_be_written_is_exit_2_and_one_sentence(plan_to, tmp_path, path):
    (tmp_path / "dangling").symlink_to("nowhere/plan.json")
    (tmp_path / "circular").symlink_to("circular")
    before = sorted(os.listdir(tmp_path))
    run = plan_to(path)
    assert (run.code, run.out) == (2, "")
    assert run.err.startswith(f"reprise: {path}: {CAN_NOT[path]}") and run.err.count("\n") == 1
    assert sorted(os.listdir(tmp_path)) == sorted({*before, "net.json"})


def test_no_name_is_no_file(plan_to):
    run = plan_to("")
    assert (run.code, run.out) == (2, "")
    assert "--output: want a name" in run.err


def test_nothing_but_the_file_is_left_in_the_folder(plan_to, reprise, net, tmp_path):
    for _ in range(2):
        assert plan_to("plan.json").code == 0
        assert reprise("convert", net, "--to", "dot", "-o", "net.dot").code == 0
    assert sorted(os.listdir(tmp_path)) == ["net.dot", "net.json", "plan.json"]
