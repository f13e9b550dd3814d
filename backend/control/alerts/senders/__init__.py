"""Drivers that send one message to one receiver: ``webhook_sender``, ``alertmanager_sender``, ``apprise_sender``.

``http_posts`` is what the first two share, ``send_result`` how a try ends.
"""
