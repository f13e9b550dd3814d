"""Runs every session against a fresh cluster and prints its transcript, as the fixture has it."""

from __future__ import annotations

import json
import sys

from tests.interop.sessions import aio, confluent, java, java_replicas, python, python_admin

if __name__ == "__main__":
    lines_by_client = {}
    for session in (confluent, python, python_admin, aio, java, java_replicas):
        transcript = session.run(sys.argv[1])
        lines_by_client[transcript.client] = transcript.lines
    json.dump(lines_by_client, sys.stdout, indent=1)
