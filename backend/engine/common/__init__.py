"""Bases shared by the engine's parts. Pure: no I/O, clock, randomness, thread or asyncio."""
