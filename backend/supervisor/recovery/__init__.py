"""Broker folders of a stopped cluster, and the recovery of a metadata quorum without its majority.

``broker_folders`` judges the folders, ``metadata_copies`` reads each node's metadata log, ``quorum_recovery`` plans
from which copy to go on, ``quorum_rewrite`` does it.
"""
