"""What every room uses: errors, files that appear whole, named random streams, registries.

Nothing here knows what split learning is.
"""
