"""What devices and the server say to each other, and how it is written: see wire.proto."""
