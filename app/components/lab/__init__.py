"""Parts of the Lab's pages: the bootstrap race, its replay, faults. Pure."""
