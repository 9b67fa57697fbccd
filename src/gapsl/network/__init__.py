"""The same training over the network: what the parties say to each other, and who they are.

`protocol` has the bytes, `server` and `device` the two ends, then there are the `parameter_server`, `tls`,
what both servers share (`serving`), and a fleet to try things out (`processes`). No method and no file of a
run but `fleet.json` is known here: `fleets.remote` translates.
"""
