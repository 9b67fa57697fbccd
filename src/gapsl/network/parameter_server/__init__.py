"""The parameter server, which averages or hands on client-side models, and a device's visit to it.

Knows nothing of the training server.
"""
