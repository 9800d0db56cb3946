"""External code generators, which compute parts of a model with other libraries."""
