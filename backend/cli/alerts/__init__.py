"""Commands about findings and who is notified of them.

``alert_commands``: receivers, thresholds. ``silence_commands``: mute, unmute, acknowledge. ``maintenance_commands``:
windows. ``times``: durations and moments as people write them.
"""
