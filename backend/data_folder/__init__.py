"""The data folder of one cluster.

``data_folder``: identity and layout. ``lost_identity``: the identity again, from the brokers' files.
``dashboard_login``: the keys and the secret of the dashboard's login.
"""
