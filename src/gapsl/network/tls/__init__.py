"""Who is who in a fleet: certificates, the files they are in, and what they are checked for.

`names` and `credentials` are all a device needs, without the cryptography package; `certificates` and
`authority` are for the machine with the authority, `peers` for the servers. Nothing here knows what is
sent.
"""
