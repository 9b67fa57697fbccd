"""The third party that averages client-side models or passes them on, and a device's visit to it.

The training server never sees a client-side model, and nothing here knows the training server, its rounds
or its methods.
"""
