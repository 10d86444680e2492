"""Tests of the viewer: its data, and its page in a browser."""
