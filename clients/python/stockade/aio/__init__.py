"""The client for asyncio. Package blocking is made of this one by generate.py."""
