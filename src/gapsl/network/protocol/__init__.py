"""What is said over the network, and its bytes: messages, tensors in parts, codecs, settings.

Everything that arrives is checked against what was agreed before memory is taken for it. Nothing here knows
training, who is speaking, or what becomes of what was said.
"""
