"""The HTTP API and the page: parse, authorise, call, serialise."""
