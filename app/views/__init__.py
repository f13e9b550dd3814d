"""One module per page. A page reads facts, hands them to pure functions, and draws what these return."""
