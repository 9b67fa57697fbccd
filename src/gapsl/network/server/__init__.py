"""The server's end: a `session` per stream, a `device_link` per device, and the `dispatcher`, which asks.

What has to be remembered of devices is in `fleet_state`. No method, no meaning of a tensor and no file of a
run but `fleet.json` is known here.
"""
