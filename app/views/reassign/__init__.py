"""The Reassign page: inputs, review, the running reassignment."""
