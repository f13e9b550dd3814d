"""Parts of every page: the page itself, its header, cards, markup, number formats, export, style."""
