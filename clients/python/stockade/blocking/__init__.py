"""The client that blocks. All but edge.py is made by generate.py from package aio, which is the one to read and to change."""
