"""The server's end: sessions, who is listed, asking and waiting, recovery after a failure.

Knows no method.
"""
