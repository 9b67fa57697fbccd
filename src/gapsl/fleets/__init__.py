"""Ways in which a run reaches its devices: in this process, in several, on a Ray cluster, over the network.

What every fleet promises stands in `base`. `local` has devices of this process, also as records say what
became of others; `spread` those of several workers (`worker`, `memory`), which are `processes` or actors of
`ray`; `remote` those over the network. No method, and nothing that decides what is trained, belongs here.
"""
