"""A plan of a change: its text, the dialog that creates and executes it, pictures of a reassignment."""
