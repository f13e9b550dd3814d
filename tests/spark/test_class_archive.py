"""The archive of Spark's classes: used where there is one, and no loss where there is none. No JVM starts here."""

from __future__ import annotations

import os
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from spark.class_archive import NotArchived, _name, archive_of, java_options, make_archive
from spark.java import Java, NoUsableJava, find_java


@pytest.fixture
def java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Java:
    """A stand-in that is no Java, in a separate Python environment."""
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "environment"))
    binary = tmp_path / "jdk" / "bin" / "java"
    binary.parent.mkdir(parents=True)
    binary.write_text("#!/bin/sh\necho No Java here >&2\nexit 1\n")
    binary.chmod(0o755)
    return Java(tmp_path / "jdk", binary, 17, "PATH")


def test_without_an_archive_the_jvm_gets_no_option(java: Java) -> None:
    assert java_options(java) == ()


def archive(java: Java, content: bytes, size: int) -> Path:
    folder = Path(sys.prefix) / "share" / "ebbline"
    folder.mkdir(parents=True)
    file = folder / f"{_name(java)}-{size}.jsa"
    file.write_bytes(content)
    return file


def test_an_archive_is_used_by_the_java_that_it_was_made_for_alone(java: Java) -> None:
    made = archive(java, b"classes", 7)
    assert java_options(java)[0] == f"-XX:SharedArchiveFile={made}"
    os.utime(java.binary, (1, 1))  # another one came with an upgrade
    assert java_options(java) == ()


def test_an_archive_that_was_cut_is_not_used(java: Java) -> None:
    archive(java, b"class", 7)
    assert archive_of(java) is None


def test_one_java_by_two_names_has_one_archive(java: Java, tmp_path: Path) -> None:
    made = archive(java, b"classes", 7)
    (tmp_path / "link").symlink_to(tmp_path / "jdk")
    assert archive_of(replace(java, binary=tmp_path / "link" / "bin" / "java")) == made


def test_what_java_cannot_do_is_one_sentence_and_leaves_nothing(java: Java, tmp_path: Path) -> None:
    with pytest.raises(NotArchived, match="could not be archived") as caught:
        make_archive(java, tmp_path / "scratch")
    assert "\n" not in str(caught.value)
    assert list((tmp_path / "environment" / "share" / "ebbline").iterdir()) == []


def test_a_folder_that_cannot_be_written_is_named(java: Java, tmp_path: Path) -> None:
    (tmp_path / "environment").write_text("a file")
    with pytest.raises(NotArchived, match="environment/share/ebbline"):
        make_archive(java, tmp_path / "scratch")


def test_the_session_of_the_pipeline_runs_on_the_archive_that_make_prepared(
    spark_session: SparkSession, tmp_path: Path
) -> None:
    try:
        # Starting Spark has set JAVA_HOME to its own script.
        expected = java_options(find_java(tmp_path / "java", {**os.environ, "JAVA_HOME": ""}))
    except NoUsableJava as reason:
        pytest.skip(str(reason))
    if not expected:
        pytest.skip("there is no archive of Spark's classes: `ebbline pipeline prepare` makes it")
    assert spark_session._jvm is not None
    runtime = spark_session._jvm.java.lang.management.ManagementFactory.getRuntimeMXBean()
    assert set(expected) <= set(runtime.getInputArguments())
