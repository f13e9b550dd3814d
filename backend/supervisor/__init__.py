"""`ebbline up`: starts backend, pipeline and dashboard, keeps them running, stops them in order.

``up`` is the run. Packages in its order: ``checks`` (conditions before anything starts), ``children`` (the processes),
``recovery`` (the brokers' folders, and a metadata quorum that has lost its majority).
"""
