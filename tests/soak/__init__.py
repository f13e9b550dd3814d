"""The long form of tests that gain from length: many kills, seeds and examples."""
