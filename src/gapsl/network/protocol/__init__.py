"""What is said over the network, and its bytes; everything is checked before memory is taken.

Knows neither training nor who is speaking.
"""
