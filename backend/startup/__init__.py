"""The backend's process, from its entry to its end.

``backend_entry`` is its entry point and imports the rest, ``child_environment`` reads what `ebbline up` gives it,
``engine_profile`` has the brokers' settings, ``backend_process`` builds engine and control plane (the one module that
sees both) and stops them, ``fault_injector`` puts faults into its brokers for the lab. The supervisor, which starts it,
is `backend.supervisor`; `prestart` there starts it early.
"""
