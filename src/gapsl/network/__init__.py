"""The same training over the network: what the parties say to each other, and who they are."""
