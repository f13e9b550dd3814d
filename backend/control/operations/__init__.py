"""The only way in which anything changes a cluster: plan → checks → confirm → execute → verify → revert.

``states`` is the life of a plan as one table; ``plan`` the values a plan consists of; ``kinds`` what one kind of change
must know (each is a module: ``toggle_bootstrap``, ``topic_config``, …); ``service`` drives them, stores every step and
writes the audit. Refusals are audited like changes.
"""
