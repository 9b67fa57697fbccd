"""The device's end: it stays connected (`agent`), and carries out commands (`member`) with its own data.

`join` starts a device, or several in one process. No method is known or imported here: a device needs its
settings alone, which come with the server's welcome.
"""
