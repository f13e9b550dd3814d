"""Commands about the quorum that keeps the cluster's metadata.

``quorum_commands`` asks a broker, ``recover`` works on a data folder whose majority of voters is lost, ``snapshots``
reads metadata snapshots as files.
"""
